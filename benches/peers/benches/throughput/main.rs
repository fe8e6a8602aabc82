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
//! with a limit of 100,000 per 10 ms: so many that the quota is not what is measured.
//!
//! The second table judges the departures themselves: never more than the limit in any window. Its limits have the
//! same rate. Where the window is shorter than the guard, for which an exact limiter keeps a departure beyond its
//! window, the guard is what limits the rate.
//!
//! Figures are medians over the rounds: those of ratios, too. Also shown is what Redis had to do for a
//! permit: the calls, the time in scripts (`usec` of `evalsha` in `INFO commandstats`), and the bytes on
//! the network in both directions.
//!
//! Bounds, with 512 callers: at least 1.5 million permits/s; at least 20 times as many as the best of the peers.

mod contestant;
mod judged;

use std::time::Duration;

use clap::Parser;
use tower_throttle_peers::peers::Rate;
use tower_throttle_peers::rounds::{Rounds, turns};
use tower_throttle_peers::support::{
    Cell, Options, Output, Progress, RedisServer, Table, until_asked_to_end,
};
use tower_throttle_peers::traffic::Meter;

use self::contestant::Contestant;

const LIMIT: u32 = 100_000;
const RATE: Rate = Rate {
    limit: LIMIT,
    window: Duration::from_millis(10),
};
const CALLERS: [usize; 4] = [1, 64, CROWD, 2_000];
/// For whom there are bounds, and therefore more rounds.
const CROWD: usize = 512;

const LEAST_RATE: f64 = 1.5e6;
const LEAST_RATIO: f64 = 20.0;

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
    let contestants = Contestant::all(&server).await?;
    let mut progress = Progress::new(CALLERS.map(rounds).iter().sum::<usize>() + 1);
    for callers in CALLERS {
        let series = measure(callers, &contestants, &mut meter, &output, &mut progress).await?;
        output.table(&table(callers, &contestants, &series));
        if callers == CROWD {
            judge(&series, contestants.len(), &mut output);
        }
    }
    progress.begin("the departures, judged");
    judged::measure(&server, &output).await?;
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
            "ours to this",
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
    let claim = format!("permits per s to the best peer's, {CROWD} callers");
    output.at_least(claim, ratio, LEAST_RATIO);
}
