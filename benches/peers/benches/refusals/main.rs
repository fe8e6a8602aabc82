//! How fast a key over its limit is refused, by one thread, beside other limiters.
//!
//! ```sh
//! cargo bench --bench refusals                     # a table
//! cargo bench --bench refusals -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! One request per hour may depart, and has. Then one task on a runtime of one thread asks again and
//! again, whoever it asks in its turn, and is refused each time: by the limiter on a `redis-server` of the
//! benchmark's own, and on its embedded store; by `governor`, which knows no other process; by
//! `tower_governor`, which answers 429; and by those that ask Redis. Also shown is how often Redis was
//! asked for one refusal. Figures are medians over the rounds: those of ratios, too.
//!
//! Bound: at least 5 million refusals/s with Redis, for a key that this process knows to be over its
//! limit. A flood must cost neither the server nor the process much.

mod contestant;

use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Parser;
use tower_throttle_peers::rounds::{Rounds, turns};
use tower_throttle_peers::support::{
    Cell, Options, Output, Progress, RedisServer, Table, until_asked_to_end,
};
use tower_throttle_peers::traffic::Meter;

use self::contestant::Contestant;

const ROUNDS: usize = 9;
const TIME: Duration = Duration::from_millis(250);
/// Asked in one go, so that the clock is not what is measured.
const BLOCK: u64 = 100;

const LEAST_RATE: f64 = 5e6;

/// Measures how fast a key over its limit is refused, beside other limiters.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    until_asked_to_end(run(Output::new(cli.options))).await
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let mut meter = Meter::new(server.connect().await?);
    let mut contestants = Contestant::all(&server).await?;
    let count = contestants.len();
    for contestant in &mut contestants {
        let granted = contestant.granted(BLOCK).await?;
        ensure!(granted == 1, "{}: {granted} granted", contestant.name());
    }
    let (mut rate, mut calls) = (Rounds::new(count), Rounds::new(count));
    let time = output.options().time(TIME);
    let mut progress = Progress::new(ROUNDS);
    for round in 0..ROUNDS {
        progress.begin("refusals");
        for place in turns(round, count) {
            let contestant = &mut contestants[place];
            let mark = meter.mark().await?;
            let (mut refused, start) = (0, Instant::now());
            while start.elapsed() < time {
                let granted = contestant.granted(BLOCK).await?;
                ensure!(granted == 0, "{}: {granted} more", contestant.name());
                refused += BLOCK;
                // A task that never waits still has to let others run.
                tokio::task::yield_now().await;
            }
            let per_second = refused as f64 / start.elapsed().as_secs_f64();
            let traffic = meter.since(&mark).await?;
            rate.push(place, per_second);
            calls.push(place, traffic.calls as f64 / refused as f64);
        }
    }
    let mut table = Table::new(
        "refusals per second by one thread",
        &[
            "limiter",
            "refusals per s",
            "ours with Redis to this",
            "calls to Redis per refusal",
        ],
    );
    for (place, contestant) in contestants.iter().enumerate() {
        table.row([
            Cell::text(contestant.name()),
            Cell::Count(rate.median(place) as u64),
            Cell::Fraction(rate.ratio(0, place)),
            Cell::Fraction(calls.median(place)),
        ]);
    }
    output.table(&table);
    output.at_least("refusals per s with Redis", rate.median(0), LEAST_RATE);
    output.finish()
}
