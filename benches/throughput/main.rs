//! Compares permits per second on one hot key, by the number of callers and the limit, with limiters that call Redis
//! for each permit.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench throughput                     # tables
//! cargo bench -p tower-throttle-benches --bench throughput -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! The callers are tasks on one thread, which leaves a core for Redis. Each acquires one permit after another from a
//! limiter on a separate `redis-server`. Limiters run in turns of a quarter of a second, with a
//! limit of 100,000 per 10 ms, which they do not reach.
//!
//! The second table checks the departures: never more than the limit in any window. Its limits have the same rate. If
//! the window is shorter than the guard, the guard limits the rate, because each departure counts for the window and
//! the guard.
//!
//! Figures and ratios are medians over the rounds. The table also shows the cost of a permit for Redis: calls, time in
//! scripts (`usec` of `evalsha` in `INFO commandstats`), and bytes on the network in both directions.
//!
//! Bounds, with 512 callers: at least 1.5 million permits/s; at least 20 times as many as the best of the peers.

mod checked;
mod contestant;

use std::time::Duration;

use tower_throttle_benches::peers::Rate;
use tower_throttle_benches::rounds::{Rounds, turns};
use tower_throttle_benches::support::{
    Cell, Output, Progress, RedisServer, Table, until_asked_to_end,
};
use tower_throttle_benches::traffic::Meter;

use self::contestant::Contestant;

const LIMIT: u32 = 100_000;
const RATE: Rate = Rate {
    limit: LIMIT,
    window: Duration::from_millis(10),
};
const CALLERS: [usize; 4] = [1, 64, CROWD, 2_000];
/// The number of callers with bounds, and therefore with more rounds.
const CROWD: usize = 512;

const LEAST_RATE: f64 = 1.5e6;
const LEAST_RATIO: f64 = 20.0;

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    until_asked_to_end(run(Output::parse(
        "Compares permits per second on one hot key with other limiters",
    )))
    .await
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let mut meter = Meter::new(server.connect().await?);
    let contestants = Contestant::all(&server).await?;
    let mut progress = Progress::new(CALLERS.map(rounds).iter().sum::<usize>() + 1);
    for callers in CALLERS {
        let series = measure(callers, &contestants, &mut meter, &output, &mut progress).await?;
        output.table(&table(callers, &contestants, &series));
        if callers == CROWD {
            judge(&series, contestants.len(), &mut output);
        }
    }
    progress.begin("checking the departures");
    checked::measure(&server, &output).await?;
    output.finish()
}

fn rounds(callers: usize) -> usize {
    if callers == CROWD { 5 } else { 3 }
}

struct Series {
    rate: Rounds,
    calls: Rounds,
    script: Rounds,
    bytes: Rounds,
}

async fn measure(
    callers: usize,
    contestants: &[Contestant],
    meter: &mut Meter,
    output: &Output,
    progress: &mut Progress,
) -> anyhow::Result<Series> {
    let time = output.options().time(Duration::from_millis(250));
    let count = contestants.len();
    let rounds = || Rounds::new(count);
    let mut series = Series {
        rate: rounds(),
        calls: rounds(),
        script: rounds(),
        bytes: rounds(),
    };
    for round in 0..self::rounds(callers) {
        progress.begin(&format!("{callers} callers, round {}", round + 1));
        for place in turns(round, count) {
            let contestant = &contestants[place];
            let mark = meter.mark().await?;
            let load = contestant.load(callers, time).await?;
            let traffic = meter.since(&mark).await?;
            let permits = load.permits as f64;
            series.rate.push(place, load.per_second());
            series.calls.push(place, traffic.calls as f64 / permits);
            let script = traffic.script_micros as f64;
            series.script.push(place, script / permits);
            series.bytes.push(place, traffic.bytes as f64 / permits);
        }
    }
    Ok(series)
}

fn table(callers: usize, contestants: &[Contestant], series: &Series) -> Table {
    let mut table = Table::new(
        "permits per second on one hot key",
        &[
            "callers",
            "limiter",
            "permits per s",
            "ours relative to this",
            "calls per permit",
            "us in scripts per permit",
            "bytes per permit",
        ],
    );
    for (place, contestant) in contestants.iter().enumerate() {
        table.row([
            Cell::Count(callers as u64),
            Cell::text(contestant.name()),
            Cell::Count(series.rate.median(place) as u64),
            Cell::Ratio(series.rate.ratio(0, place)),
            Cell::Fraction(series.calls.median(place)),
            Cell::Fraction(series.script.median(place)),
            Cell::Figure(series.bytes.median(place)),
        ]);
    }
    table
}

fn judge(series: &Series, contestants: usize, output: &mut Output) {
    let claim = format!("permits per s, {CROWD} callers");
    output.at_least(claim, series.rate.median(0), LEAST_RATE);
    let ratio = series.rate.ratio_to_most(0, 1..contestants);
    let claim = format!("permits per s relative to the best peer, {CROWD} callers");
    output.at_least(claim, ratio, LEAST_RATIO);
}
