//! Runs the example `replicas` with four setups, and checks bounds on the arrivals at the upstream.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench replicas                    # a table, in two and a half minutes
//! cargo bench -p tower-throttle-benches --bench replicas -- --json --check  # lines of JSON; fails if a bound is not met
//! cargo bench -p tower-throttle-benches --bench replicas -- --quick         # a tenth of the requests
//! ```
//!
//! Each row has three processes with a limiter and a reqwest client, a `redis-server`, and an upstream that responds
//! after 10 to 30 ms. All callers of a row start at the same time.
//!
//! | row | W | N | callers | buffer | requests |
//! | --- | --- | --- | --- | --- | --- |
//! | 1 | 1 s | 200 | 3 x 2,000 | 60 ms | 9,000 |
//! | 2 | 1 s | 50 | 3 x 1,000 | 50 ms | 3,000 |
//! | 3 | 5 s | 100 | 3 x 500 | 50 ms | 1,500 |
//! | 4 | 1 s | 1 | 3 x 10 | 50 ms | 30 |
//!
//! The first row runs alone, because its callers keep the machine busy. The others mostly wait, and run concurrently.
//! They start some seconds apart: on a machine with few cores, the connecting callers of two rows would delay each
//! other's first requests by more than the buffer.
//!
//! Bounds for each row, measured at the upstream:
//!
//! - never more than N arrive in any W;
//! - N requests take at most W + buffer + 2% of W, where 2% allows for the guard, 12 ms in 1 s;
//! - no request fails;
//! - a request costs at most one call to the store, and with 500 callers or more at most a tenth of a Redis command. Not
//!   checked with `--quick`, where too few requests share the cost of the start.

#[allow(dead_code, reason = "only the example uses the rest")]
#[path = "../../examples/replicas/trial/mod.rs"]
mod trial;

use std::time::Duration;

use clap::{Parser, Subcommand};
use futures_util::future::try_join_all;

use self::trial::{Limit, Replica, Report, Setup};
use tower_throttle_benches::support::{Cell, Options, Output, Progress, Table, until_asked_to_end};

/// Measures the arrivals at an upstream from replicas that share a limit.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Role {
    /// Runs one replica, for the parent process
    #[command(hide = true)]
    Replica(Replica),
}

struct Row {
    number: u32,
    window: Duration,
    limit: u32,
    callers: u32,
    buffer: Duration,
    requests: u32,
}

const ROWS: [Row; 4] = [
    Row {
        number: 1,
        window: Duration::from_secs(1),
        limit: 200,
        callers: 2_000,
        buffer: Duration::from_millis(60),
        requests: 9_000,
    },
    Row {
        number: 2,
        window: Duration::from_secs(1),
        limit: 50,
        callers: 1_000,
        buffer: Duration::from_millis(50),
        requests: 3_000,
    },
    Row {
        number: 3,
        window: Duration::from_secs(5),
        limit: 100,
        callers: 500,
        buffer: Duration::from_millis(50),
        requests: 1_500,
    },
    Row {
        number: 4,
        window: Duration::from_secs(1),
        limit: 1,
        callers: 10,
        buffer: Duration::from_millis(50),
        requests: 30,
    },
];
const PROCESSES: u32 = 3;
/// Delay between the starts of concurrent rows.
const APART: Duration = Duration::from_secs(3);
/// The share of the window that may be lost in addition to the buffer.
const MOST_LOST: f64 = 0.02;
/// Minimum number of callers per process for the bound on Redis commands, and that bound per request.
const MANY_CALLERS: u32 = 500;
const MOST_COMMANDS: f64 = 0.1;

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    match cli.role {
        Some(Role::Replica(replica)) => replica.run(),
        None => run(Output::new(cli.options)),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(output: Output) -> anyhow::Result<()> {
    until_asked_to_end(measure(output)).await
}

async fn measure(mut output: Output) -> anyhow::Result<()> {
    let mut table = Table::new(
        "arrivals at the upstream of three replicas",
        &[
            "window s",
            "limit",
            "callers",
            "buffer ms",
            "requests",
            "window and buffer",
            "seconds per window",
            "most in any window",
            "store calls",
            "redis commands",
            "failed",
        ],
    );
    let (first, others) = ROWS.split_at(1);
    let mut progress = Progress::new(2);
    for (rows, what) in [(first, "row 1"), (others, "rows 2 to 4 at the same time")] {
        progress.begin(what);
        let trials = rows.iter().enumerate().map(async |(place, row)| {
            tokio::time::sleep(APART * place as u32).await;
            row.run(row.requests(&output)).await
        });
        for (row, report) in rows.iter().zip(try_join_all(trials).await?) {
            table.row(row.cells(&report, row.requests(&output)));
            row.judge(&report, &mut output);
        }
    }
    output.table(&table);
    output.finish()
}

impl Row {
    /// The number of requests.
    fn requests(&self, output: &Output) -> u32 {
        output.options().count(self.requests.into()) as u32
    }

    async fn run(&self, requests: u32) -> anyhow::Result<Report> {
        let setup = Setup {
            limit: Limit {
                window: self.window,
                limit: self.limit,
                buffer: self.buffer,
            },
            processes: PROCESSES,
            callers: self.callers,
            requests,
            redis: None,
        };
        let number = self.number;
        let report = trial::run(&setup, |message| eprintln!("row {number}: {message}")).await?;
        Ok(report)
    }

    fn cells(&self, report: &Report, requests: u32) -> [Cell; 11] {
        let Self { window, buffer, .. } = self;
        [
            Cell::Count(window.as_secs()),
            Cell::Count(self.limit.into()),
            Cell::text(format!("{PROCESSES} x {}", self.callers)),
            Cell::Count(buffer.as_millis() as u64),
            Cell::Count(requests.into()),
            Cell::Fraction((*window + *buffer).as_secs_f64()),
            Cell::Fraction(report.seconds_per_window()),
            Cell::Count(report.most_in_window),
            Cell::Count(report.calls.of_scripts()),
            Cell::Count(report.calls.of_clients()),
            Cell::Count(report.failed),
        ]
    }

    fn judge(&self, report: &Report, output: &mut Output) {
        let Self { number, window, .. } = self;
        let requests = self.requests(output);
        let claim = |what: &str| format!("row {number}, {what}");
        let most = (*window + self.buffer).as_secs_f64() + MOST_LOST * window.as_secs_f64();
        output.at_most(
            claim("seconds per window"),
            report.seconds_per_window(),
            most,
        );
        let most = report.most_in_window as f64;
        output.at_most(claim("most in any window"), most, self.limit.into());
        let per_request = |count: u64| count as f64 / f64::from(requests);
        // All requests share the cost of the start, so this needs the full number of requests.
        if requests == self.requests {
            let calls = per_request(report.calls.of_scripts());
            let few = if self.callers >= MANY_CALLERS {
                0.1
            } else {
                3.0
            };
            output.at_most(claim("store calls per request"), calls, few);
            if self.callers >= MANY_CALLERS {
                let commands = per_request(report.calls.of_clients());
                output.at_most(claim("redis commands per request"), commands, MOST_COMMANDS);
            }
        }
        output.at_most(claim("failed"), report.failed as f64, 0.0);
    }
}
