//! Compares how fast limiters refuse requests of a key over its limit, on one thread.
//!
//! The limit is one request per hour, and one has departed. Then one task on a runtime with one thread repeats the
//! request with each limiter in turn, and is refused each time: no other request may depart. This crate with Redis
//! caches that the key is over its limit. `governor` has no shared state; `tower_governor` responds with 429. Figures
//! and ratios are medians over the rounds.

mod refusing;

use std::time::{Duration, Instant};

use anyhow::ensure;
use tower_throttle_benches::rounds::{Rounds, turns};
use tower_throttle_benches::support::{self, Cell, Output, Progress, RedisServer, Table};
use tower_throttle_benches::traffic::Meter;

use self::refusing::{Refusing, TOWER_GOVERNOR};

const ROUNDS: usize = 9;
const TIME: Duration = Duration::from_millis(250);
/// Number of requests between two readings of the clock.
const BLOCK: u64 = 100;

const LEAST_RATIO: f64 = 134.0;

fn main() -> anyhow::Result<()> {
    support::measure(
        "Compares how fast limiters refuse requests of a key over its limit",
        run,
    )
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let mut meter = Meter::new(server.connect().await?);
    let mut all = Refusing::all(&server).await?;
    let count = all.len();
    for limiter in &mut all {
        let granted = limiter.granted(BLOCK).await?;
        ensure!(granted == 1, "{}: {granted} granted", limiter.name());
    }
    let [mut rate, mut calls] = Rounds::several(count);
    let time = output.options().time(TIME);
    let mut progress = Progress::new(ROUNDS);
    for round in 0..ROUNDS {
        progress.begin("refusals");
        for place in turns(round, count) {
            let limiter = &mut all[place];
            let mark = meter.mark().await?;
            let (mut refused, start) = (0, Instant::now());
            while start.elapsed() < time {
                let granted = limiter.granted(BLOCK).await?;
                ensure!(granted == 0, "{}: {granted} more granted", limiter.name());
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
        "refusals by one thread",
        &[
            "limiter",
            "refusals per s",
            "ours with Redis relative to this",
            "calls to Redis per refusal",
        ],
    );
    for (place, limiter) in all.iter().enumerate() {
        table.row([
            Cell::text(limiter.name()),
            Cell::Count(rate.median(place) as u64),
            Cell::Ratio(rate.ratio(0, place)),
            Cell::Ratio(calls.median(place)),
        ]);
        if limiter.name() == TOWER_GOVERNOR {
            let claim = "refusals from the denial cache, to tower_governor";
            output.at_least(claim, rate.ratio(0, place), LEAST_RATIO);
        }
    }
    output.table(&table);
    output.finish()
}
