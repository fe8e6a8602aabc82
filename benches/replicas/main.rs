//! Runs the example `replicas` with four setups, and checks the arrivals at the upstream.
//!
//! Each row has three processes with a limiter and a reqwest client, a `redis-server`, and an upstream that responds
//! after 10 to 30 ms. All callers of a row start at the same time. The first row runs alone, because its callers keep
//! the machine busy. The others mostly wait, and run concurrently. They start some seconds apart: on a machine with few
//! cores, the connecting callers of two rows would delay each other's first requests by more than the buffer.
//!
//! Bounds: at most N arrive in any W, and no request fails. On a busy machine a request may take longer than the buffer
//! from its departure to its arrival.

#[allow(dead_code, reason = "only the example uses the rest")]
#[path = "../../examples/replicas/trial/mod.rs"]
mod trial;

use std::time::Duration;

use clap::{Parser, Subcommand};
use futures_util::future::try_join_all;
use tower_throttle_benches::{Options, Output, Table, count, measure_into, ratio, text};

use self::trial::{Limit, Replica, Report, Setup};

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
    window: Duration,
    limit: u32,
    callers: u32,
    buffer: Duration,
    requests: u32,
}

const ROWS: [Row; 4] = [
    Row::new(1, 200, 2_000, 60, 4_000),
    Row::new(1, 50, 1_000, 50, 1_500),
    Row::new(5, 100, 500, 50, 600),
    Row::new(1, 1, 10, 50, 25),
];
const PROCESSES: u32 = 3;
/// Delay between the starts of concurrent rows.
const APART: Duration = Duration::from_secs(3);

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    match cli.role {
        Some(Role::Replica(replica)) => replica.run(),
        None => measure_into(Output::new(cli.options), 0, run),
    }
}

async fn run(output: &mut Output) -> anyhow::Result<()> {
    let mut table = Table::new(
        "arrivals at the upstream of three replicas",
        "W in s | N | callers | buffer in ms | requests | W + buffer in s | s for N requests | most in any W | \
         store calls per request",
    );
    let (first, others) = ROWS.split_at(1);
    for (rows, what) in [(first, "row 1"), (others, "rows 2 to 4 at the same time")] {
        eprintln!("{what}");
        let trials = rows.iter().enumerate().map(async |(place, row)| {
            tokio::time::sleep(APART * place as u32).await;
            row.run(output).await
        });
        let reports = try_join_all(trials).await?;
        for (row, report) in rows.iter().zip(reports) {
            let Row { window, limit, .. } = row;
            let requests = output.count(row.requests);
            let most = report.most_in_window as f64;
            table.row([
                count(window.as_secs() as u32),
                count(*limit),
                text(format!("{PROCESSES} x {}", row.callers)),
                count(row.buffer.as_millis() as u32),
                count(requests),
                ratio((*window + row.buffer).as_secs_f64()),
                ratio(report.seconds_per_window()),
                count(most),
                ratio(report.calls.of_scripts() as f64 / f64::from(requests)),
            ]);
            let claim = |what| format!("replicas, N = {limit}, W = {window:?}, {what}");
            let limit = f64::from(*limit);
            output.at_most(claim("most arrivals in any W"), most, limit);
            output.at_most(claim("failed requests"), report.failed as f64, 0.0);
        }
    }
    println!("{table}");
    Ok(())
}

impl Row {
    const fn new(window_s: u64, limit: u32, callers: u32, buffer_ms: u64, requests: u32) -> Self {
        Self {
            window: Duration::from_secs(window_s),
            limit,
            callers,
            buffer: Duration::from_millis(buffer_ms),
            requests,
        }
    }

    async fn run(&self, output: &Output) -> anyhow::Result<Report> {
        let setup = Setup {
            limit: Limit {
                window: self.window,
                limit: self.limit,
                buffer: self.buffer,
            },
            processes: PROCESSES,
            callers: self.callers,
            requests: output.count(self.requests),
            redis: None,
        };
        let limit = self.limit;
        trial::run(&setup, |message| eprintln!("N = {limit}: {message}")).await
    }
}
