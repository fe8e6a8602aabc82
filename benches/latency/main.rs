//! Compares the latency of an available permit with a plain `PING`.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench latency                     # a table
//! cargo bench -p tower-throttle-benches --bench latency -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! One task on a runtime with one thread alternates between `PING`, `acquire` and the peers, in a different order each
//! time, so that other load on the machine affects all of them. All use one connection to a separate `redis-server`.
//! The limiter uses a `RedisStore`. The caller uses about half of a limit of 10,000, and a fifth of a limit of 10, so
//! the log is long but the caller never waits, even if noise doubles the guard. (The default guard is longer than 10
//! requests take; here, it is a tenth of that.)
//!
//! Figures are medians over the rounds: of the quantiles in each round, and of their ratios.
//!
//! Bounds: `acquire` takes at most 1.2 times as long as `PING` in the median, and at most 1.5 times in
//! the 99th percentile.

mod contestant;

use std::time::{Duration, Instant};

use tower_throttle_benches::rounds::{Rounds, quantile, turns};
use tower_throttle_benches::support::{
    Cell, Output, Progress, RedisServer, Table, until_asked_to_end,
};

use self::contestant::Contestant;

/// Limits, and their windows as a share of the time of that many requests.
const LIMITS: [(u32, f64); 2] = [(10, 0.1), (10_000, 0.5)];
const ROUNDS: usize = 9;
/// Number of calls of each contestant in a round.
const CALLS: u64 = 2_000;

const MOST_RATIOS: [(f64, &str, f64); 2] = [(0.5, "p50", 1.2), (0.99, "p99", 1.5)];

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    until_asked_to_end(run(Output::parse(
        "Measures the latency of an available permit",
    )))
    .await
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let connection = server.connect().await?;
    let mut contestants = Contestant::all(&connection, Duration::from_millis(1)).await?;
    let calls = output.options().count(CALLS) as usize;
    let start = Instant::now();
    round(&mut contestants, calls).await?;
    let pace = start.elapsed() / calls as u32;
    let mut contestants = Contestant::all(&connection, pace).await?;

    let mut quantiles = MOST_RATIOS.map(|_| Rounds::new(contestants.len()));
    let mut progress = Progress::new(ROUNDS);
    for number in 0..ROUNDS {
        progress.begin("one caller");
        let times = round(&mut contestants, calls).await?;
        for (place, times) in times.into_iter().enumerate() {
            for ((share, _, _), quantiles) in MOST_RATIOS.iter().zip(&mut quantiles) {
                quantiles.push(place, quantile(times.clone(), *share));
            }
        }
        if number == 0 {
            // Discards the times so far, which include loading scripts and creating keys.
            quantiles = MOST_RATIOS.map(|_| Rounds::new(contestants.len()));
        }
    }
    show(&contestants, &quantiles, &mut output);
    output.finish()
}

/// The times of each contestant's calls, in microseconds.
async fn round(contestants: &mut [Contestant], calls: usize) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::with_capacity(calls); contestants.len()];
    for call in 0..calls {
        for place in turns(call, contestants.len()) {
            let start = Instant::now();
            contestants[place].call().await?;
            times[place].push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(times)
}

fn show(contestants: &[Contestant], [p50, p99]: &[Rounds; 2], output: &mut Output) {
    let mut table = Table::new(
        "latency of a permit for one caller, in microseconds",
        &[
            "call",
            "p50",
            "p99",
            "p50 relative to PING",
            "p99 relative to PING",
            "limit was reached",
        ],
    );
    for (place, contestant) in contestants.iter().enumerate() {
        table.row([
            Cell::text(contestant.name()),
            Cell::Figure(p50.median(place)),
            Cell::Figure(p99.median(place)),
            Cell::Ratio(p50.ratio(place, 0)),
            Cell::Ratio(p99.ratio(place, 0)),
            Cell::Count(contestant.limited()),
        ]);
    }
    output.table(&table);
    for (place, contestant) in contestants.iter().enumerate() {
        if !contestant.is_ours() {
            continue;
        }
        for ((_, name, most), quantiles) in MOST_RATIOS.into_iter().zip([p50, p99]) {
            let claim = format!("{} relative to PING, {name}", contestant.name());
            output.at_most(claim, quantiles.ratio(place, 0), most);
        }
    }
}
