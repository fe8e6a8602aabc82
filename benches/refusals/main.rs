//! Compares how fast limiters refuse requests of a key over its limit, on one thread.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench refusals                     # a table
//! cargo bench -p tower-throttle-benches --bench refusals -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! The limit is one request per hour, and one has departed. Then one task on a runtime with one thread repeats the
//! request with each limiter in turn, and is refused each time. The limiters are this crate on a separate
//! `redis-server` and on the embedded store; `governor`, which has no shared state; `tower_governor`, which responds
//! with 429; and limiters that call Redis. The table also shows the calls to Redis per refusal. Figures and ratios are
//! medians over the rounds.
//!
//! Bound: at least 5 million refusals/s with Redis, if the process has cached that the key is over
//! its limit. A flood must be cheap for the server and the process.

mod contestant;

use std::time::{Duration, Instant};

use anyhow::ensure;
use tower_throttle_benches::rounds::{Rounds, turns};
use tower_throttle_benches::support::{
    Cell, Output, Progress, RedisServer, Table, until_asked_to_end,
};
use tower_throttle_benches::traffic::Meter;

use self::contestant::Contestant;

const ROUNDS: usize = 9;
const TIME: Duration = Duration::from_millis(250);
/// Number of requests between two readings of the clock.
const BLOCK: u64 = 100;

const LEAST_RATE: f64 = 5e6;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    until_asked_to_end(run(Output::parse(
        "Compares how fast limiters refuse requests of a key over its limit",
    )))
    .await
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
                ensure!(
                    granted == 0,
                    "{}: {granted} more granted",
                    contestant.name()
                );
                refused += BLOCK;
                // A task that never waits still has to yield to others.
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
            "ours with Redis relative to this",
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
