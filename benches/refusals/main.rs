//! Compares how fast limiters refuse requests of a key over its limit, on one thread.
//!
//! The limit is one request per hour, and one has departed. Then one task on a runtime with one thread repeats the
//! request with each limiter in turn, and is refused each time: no other request may depart. This crate with Redis
//! caches that the key is over its limit. `governor` has no shared state; `tower_governor` responds with 429. Figures
//! and ratios are medians over the rounds.

mod refusing;

use std::time::{Duration, Instant};

use anyhow::ensure;
use support::redis_server::RedisServer;
use tower_throttle_benches::{
    Meter, Output, Rounds, Table, begin, count, measure, ratio, text, turns,
};

use self::refusing::{Refusing, TOWER_GOVERNOR};

const ROUNDS: usize = 9;
const TIME: Duration = Duration::from_millis(250);
/// Number of requests between two readings of the clock.
const BLOCK: u32 = 100;

const LEAST_RATIO: f64 = 134.0;

fn main() -> anyhow::Result<()> {
    measure(0, run)
}

async fn run(output: &mut Output) -> anyhow::Result<()> {
    let server = RedisServer::start();
    let mut meter = Meter::new(&server).await?;
    let mut all = Refusing::all(&server).await?;
    for limiter in &mut all {
        let granted = limiter.granted(BLOCK).await?;
        ensure!(granted == 1, "{}: {granted} granted", limiter.name);
    }
    let [mut rate, mut calls] = Rounds::several(all.len());
    begin("refusals");
    for (_, place) in turns(ROUNDS, all.len()) {
        let limiter = &mut all[place];
        let mark = meter.mark().await?;
        let (mut refused, start) = (0.0, Instant::now());
        while start.elapsed() < output.time(TIME) {
            let granted = limiter.granted(BLOCK).await?;
            ensure!(granted == 0, "{}: {granted} more granted", limiter.name);
            refused += f64::from(BLOCK);
            // A task that never waits still has to yield to others.
            tokio::task::yield_now().await;
        }
        rate.push(place, refused / start.elapsed().as_secs_f64());
        calls.push(place, meter.since(&mark).await?.calls / refused);
    }
    let mut table = Table::new(
        "refusals by one thread",
        "limiter | refusals per s | ours with Redis relative to this | calls to Redis per refusal",
    );
    for (place, limiter) in all.iter().enumerate() {
        let to_this = rate.ratio(0, place);
        table.row([
            text(limiter.name),
            count(rate.median(place)),
            ratio(to_this),
            ratio(calls.median(place)),
        ]);
        if limiter.name == TOWER_GOVERNOR {
            let claim = "refusals from the denial cache, to tower_governor";
            output.at_least(claim, to_this, LEAST_RATIO);
        }
    }
    output.table(&table);
    Ok(())
}
