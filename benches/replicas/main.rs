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

use self::trial::{Limit, Replica, Setup};

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

/// W in seconds, N, callers of each process, the buffer in milliseconds, and requests.
const ROWS: [(u64, u32, u32, u64, u32); 4] = [
    (1, 200, 2_000, 60, 4_000),
    (1, 50, 1_000, 50, 1_500),
    (5, 100, 500, 50, 600),
    (1, 1, 10, 50, 25),
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
    let setups = ROWS.map(|(window, limit, callers, buffer, requests)| Setup {
        limit: Limit {
            window: Duration::from_secs(window),
            limit,
            buffer: Duration::from_millis(buffer),
        },
        processes: PROCESSES,
        callers,
        requests: output.count(requests),
        redis: None,
    });
    let (first, others) = setups.split_at(1);
    for (setups, what) in [(first, "row 1"), (others, "rows 2 to 4 at the same time")] {
        eprintln!("{what}");
        let trials = setups.iter().enumerate().map(async |(place, setup)| {
            tokio::time::sleep(APART * place as u32).await;
            let limit = setup.limit.limit;
            trial::run(setup, |message| eprintln!("N = {limit}: {message}")).await
        });
        let reports = try_join_all(trials).await?;
        for (setup, report) in setups.iter().zip(reports) {
            let (limit, window) = (setup.limit.limit, setup.limit.window);
            let most = report.most_in_window as f64;
            table.row([
                count(window.as_secs() as u32),
                count(limit),
                text(format!("{PROCESSES} x {}", setup.callers)),
                count(setup.limit.buffer.as_millis() as u32),
                count(setup.requests),
                ratio((window + setup.limit.buffer).as_secs_f64()),
                ratio(report.seconds_per_window()),
                count(most),
                ratio(report.calls.of_scripts() as f64 / f64::from(setup.requests)),
            ]);
            let claim = |what| format!("replicas, N = {limit}, W = {window:?}, {what}");
            output.at_most(claim("most arrivals in any W"), most, limit.into());
            output.at_most(claim("failed requests"), report.failed as f64, 0.0);
        }
    }
    println!("{table}");
    Ok(())
}
