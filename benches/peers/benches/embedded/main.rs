//! What a permit costs within one process, without Redis, beside limiters made for that.
//!
//! ```sh
//! cargo bench --bench embedded                     # tables
//! cargo bench --bench embedded -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! | table | who asks | for |
//! | --- | --- | --- |
//! | one thread | one | one key |
//! | two threads | two at a time | the same key |
//! | a million keys | one | a random one of a million keys, after it has asked for each once |
//!
//! Permits are there at once: the limits are higher than anyone can ask. For one key, that is a burst
//! of a billion with GCRA, and 20,000 per 0.5 ms with the sliding log, which keeps each request for so
//! long, and for the guard, here as long again. For a million keys it is 1,000 per hour. `governor` is GCRA,
//! so GCRA is what its figures are compared with; the log, our default, stands beside it. The key is
//! passed as a `Key` that is cloned, or as text.
//!
//! Beside them stands what a look at the clock takes, which every permit needs.
//!
//! All take turns in blocks of some thousand calls; figures are medians over the rounds, those of
//! ratios, too. Allocations are counted by the allocator, in blocks of their own.
//!
//! Bounds: on one thread, GCRA takes at most 1.5 times as long as `governor`; with two threads, not
//! longer; and no permit allocates anything.

mod contestant;
mod keys;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Parser;
use tower_throttle_peers::rounds::{Rounds, turns};
use tower_throttle_peers::support::{Cell, Options, Output, Progress, Table};

use self::contestant::{Contestant, GOVERNOR};

/// Long enough for any limiter to let go of what it keeps.
const WARM_UP: u64 = 100_000;
const BLOCK: u64 = 20_000;
const ROUNDS: u64 = 100;

const MOST_RATIOS: [f64; 2] = [1.5, 1.0];

/// Measures what a permit costs within one process, beside other limiters.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn main() -> anyhow::Result<()> {
    let mut output = Output::new(Cli::parse().options);
    // Whoever is interrupted for longer than the guard waits, and only a runtime lets it.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let _entered = runtime.enter();
    let contestants = Contestant::all()?;
    let mut progress = Progress::new(3);
    for (threads, most) in [1, 2].into_iter().zip(MOST_RATIOS) {
        progress.begin(&format!("one key, {threads} at a time"));
        let times = measure(&contestants, threads, &output)?;
        show(&contestants, threads, &times, most, &mut output);
    }
    progress.begin("a million keys");
    keys::measure(&mut output)?;
    output.finish()
}

/// Nanoseconds per call.
fn measure(contestants: &[Contestant], threads: usize, output: &Output) -> anyhow::Result<Rounds> {
    let mut times = Rounds::new(contestants.len());
    for contestant in contestants {
        contestant.call(WARM_UP);
    }
    for round in 0..output.options().count(ROUNDS) {
        for place in turns(round as usize, contestants.len()) {
            let (granted, time) = block(&contestants[place], threads);
            let calls = BLOCK * threads as u64;
            ensure!(
                granted > calls / 100 * 99,
                "{}: {granted} of {calls} permits were there",
                contestants[place].name()
            );
            times.push(place, time.as_secs_f64() * 1e9 / calls as f64);
        }
    }
    Ok(times)
}

/// How many were granted, and how long all took.
fn block(contestant: &Contestant, threads: usize) -> (u64, Duration) {
    let start = Instant::now();
    let granted = if threads == 1 {
        contestant.call(BLOCK)
    } else {
        let runtime = tokio::runtime::Handle::current();
        let call = || {
            let _entered = runtime.enter();
            contestant.call(BLOCK)
        };
        thread::scope(|scope| {
            let calling: Vec<_> = (0..threads).map(|_| scope.spawn(call)).collect();
            let granted = calling.into_iter().map(|thread| thread.join().unwrap_or(0));
            granted.sum()
        })
    };
    (granted, start.elapsed())
}

fn show(
    contestants: &[Contestant],
    threads: usize,
    times: &Rounds,
    most: f64,
    output: &mut Output,
) {
    let governor = contestants
        .iter()
        .position(|contestant| contestant.name() == GOVERNOR)
        .unwrap_or(0);
    let mut table = Table::new(
        "nanoseconds per permit on one key",
        &[
            "threads",
            "call",
            "ns per permit",
            "to governor",
            "allocations per permit",
        ],
    );
    for (place, contestant) in contestants.iter().enumerate() {
        let allocations = contestant.allocations();
        table.row([
            Cell::Count(threads as u64),
            Cell::text(contestant.name()),
            Cell::Figure(times.median(place)),
            Cell::Ratio(times.ratio(place, governor)),
            Cell::Fraction(allocations),
        ]);
        let name = contestant.name();
        if contestant.is_like_governor() {
            let claim = format!("{name} to governor, {threads} at a time");
            output.at_most(claim, times.ratio(place, governor), most);
        }
        if contestant.is_ours() && threads == 1 {
            output.at_most(format!("{name}, allocations"), allocations, 0.0);
        }
    }
    output.table(&table);
}
