//! Permits per second on one hot key, by the number of callers and the limit, beside limiters that ask
//! Redis once for each permit.
//!
//! ```sh
//! cargo bench --bench throughput                     # tables
//! cargo bench --bench throughput -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! That many tasks on one thread, so that a core is left for Redis, ask for a permit again and again, of a
//! limiter on a `redis-server` of the benchmark's own. All limiters take turns of a quarter of a second,
//! with limits of 10, 1,000 and 10,000 per N / 10,000,000 s: so many that it is not the quota what is
//! measured.
//!
//! An exact limiter, though, keeps requests further apart than the quota says: by the guard, the time
//! for which a permit may be used, 5 ms by default. Of 10 per 1 us that leaves 10 per 5 ms, and it
//! would be these 5 ms what one measures. The peers have nothing like it: by the time that their
//! answer arrives, nobody knows how many windows have gone by. So the first table measures the limiter
//! on a store that takes the guard out ([`Unguarded`]): the script reserves slots 10 per 2 us, and as
//! soon as the answer is there, permits are used, as the peers' are. The reserved slots are judged:
//! never more than the limit in any window. Everything else is the limiter as it is. With limits of 1,000
//! and 10,000 the log is long, but not full, so that runs of slots are alike; what full logs cost stands in
//! `hot_key` and `growth`.
//!
//! The second table takes nothing out, and judges the departures themselves: of limits whose windows are
//! shorter than the default guard and, with 100,000, longer.
//!
//! Figures are medians over the rounds: those of ratios, too. Also shown is what Redis had to do for a
//! permit: the calls, the time in scripts (`usec` of `evalsha` in `INFO commandstats`), and the bytes on
//! the network in both directions.
//!
//! Bounds, with 512 callers: at least 1.5 million permits/s with N = 10; at least 20 times as many as
//! the best of the peers; with N = 10 at most 1.3 times as many as with N = 10,000.

mod contestant;
mod guarded;
#[path = "../../../../tests/support/pass_on.rs"]
mod pass_on;
mod unguarded;

use std::time::Duration;

use clap::Parser;
use tower_throttle_peers::peers::Rate;
use tower_throttle_peers::rounds::{Rounds, turns};
use tower_throttle_peers::support::{
    Cell, Options, Output, Progress, RedisServer, Table, until_asked_to_end,
};
use tower_throttle_peers::traffic::Meter;

use self::contestant::Contestant;

const LIMITS: [u32; 3] = [10, 1_000, 10_000];
const CALLERS: [usize; 4] = [1, 64, CROWD, 2_000];
/// For whom there are bounds, and therefore more rounds.
const CROWD: usize = 512;

const LEAST_RATE: f64 = 1.5e6;
const LEAST_RATIO: f64 = 20.0;
const MOST_RATIO: f64 = 1.3;

/// Measures permits per second on one hot key, beside other limiters.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    until_asked_to_end(run(Output::new(cli.options))).await
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let mut meter = Meter::new(server.connect().await?);
    let mut contestants = Vec::new();
    for limit in LIMITS {
        contestants.extend(Contestant::all(&server, rate(limit)).await?);
    }
    let mut progress = Progress::new(CALLERS.map(rounds).iter().sum::<usize>() + 1);
    for callers in CALLERS {
        let series = measure(callers, &contestants, &mut meter, &output, &mut progress).await?;
        output.table(&table(callers, &contestants, &series));
        if callers == CROWD {
            judge(&contestants, &series, &mut output);
        }
    }
    progress.begin("the limiter with its guard");
    guarded::measure(&server, &output).await?;
    output.finish()
}

/// So many that it does not matter.
fn rate(limit: u32) -> Rate {
    let window = Duration::from_secs(limit.into()) / 10_000_000;
    Rate { limit, window }
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
            contestant.judge()?;
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
            "limit",
            "limiter",
            "permits per s",
            "ours to this",
            "calls per permit",
            "us in scripts per permit",
            "bytes per permit",
        ],
    );
    for (place, contestant) in contestants.iter().enumerate() {
        let ours = place - place % (contestants.len() / LIMITS.len());
        table.row([
            Cell::Count(callers as u64),
            Cell::Count(contestant.rate().limit.into()),
            Cell::text(contestant.name()),
            Cell::Count(series.rate.median(place) as u64),
            Cell::Ratio(series.rate.ratio(ours, place)),
            Cell::Fraction(series.calls.median(place)),
            Cell::Fraction(series.script.median(place)),
            Cell::Figure(series.bytes.median(place)),
        ]);
    }
    table
}

fn judge(contestants: &[Contestant], series: &Series, output: &mut Output) {
    let parties = contestants.len() / LIMITS.len();
    let claim = format!("permits per s, {CROWD} callers, N = 10");
    output.at_least(claim, series.rate.median(0), LEAST_RATE);
    for (place, limit) in LIMITS.into_iter().enumerate() {
        let ours = place * parties;
        let ratio = series.rate.ratio_to_most(ours, ours + 1..ours + parties);
        let claim = format!("permits per s to the best peer's, {CROWD} callers, N = {limit}");
        output.at_least(claim, ratio, LEAST_RATIO);
    }
    let ratio = series.rate.ratio(0, contestants.len() - parties);
    let claim = format!("permits per s with N = 10 to N = 10,000, {CROWD} callers");
    output.at_most(claim, ratio, MOST_RATIO);
}
