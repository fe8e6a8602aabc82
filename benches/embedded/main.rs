//! Compares the cost of a permit within one process, without Redis, with other embedded limiters.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench embedded                     # tables
//! cargo bench -p tower-throttle-benches --bench embedded -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! | table | callers | keys |
//! | --- | --- | --- |
//! | one thread | one thread | one key |
//! | two threads | two threads at the same time | one key |
//! | a million keys | one thread | a random one of a million keys, after one request for each |
//!
//! Callers do not reach the limits, so they never wait. The limits for one key are a burst of a billion with GCRA, and
//! 20,000 per 0.5 ms with the sliding log, which keeps each request for the window and the guard, 0.5 ms each. For a
//! million keys, the limit is 1,000 per hour. `governor` implements GCRA, so it is compared with GCRA; the sliding log
//! is the default of this crate. The key is passed as a cloned `Key` or as text.
//!
//! The tables also show the cost of reading the clock, which every permit needs.
//!
//! Limiters run in turns, in blocks of some thousand calls. Figures and ratios are medians over the rounds. The
//! allocator counts allocations, in separate blocks.
//!
//! Bounds: on one thread, GCRA takes at most 1.5 times as long as `governor`; with two threads, at most as long. A
//! permit does not allocate.

mod contestant;
mod keys;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tower_throttle_benches::rounds::{Rounds, turns};
use tower_throttle_benches::support::{Cell, Output, Progress, Table};

use self::contestant::{Contestant, GOVERNOR};

/// Long enough for all limiters to drop expired entries.
const WARM_UP: u64 = 100_000;
const BLOCK: u64 = 20_000;
const ROUNDS: u64 = 100;

const MOST_RATIOS: [f64; 2] = [1.5, 1.0];

fn main() -> anyhow::Result<()> {
    let mut output =
        Output::parse("Compares the cost of a permit within one process with other limiters");
    // A call that is interrupted for longer than the guard has to wait, which requires a runtime.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let _entered = runtime.enter();
    let contestants = Contestant::all()?;
    let mut progress = Progress::new(3);
    for (threads, most) in [1, 2].into_iter().zip(MOST_RATIOS) {
        progress.begin(&format!("one key, {threads} threads"));
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
                "{}: {granted} of {calls} permits were granted",
                contestants[place].name()
            );
            times.push(place, time.as_secs_f64() * 1e9 / calls as f64);
        }
    }
    Ok(times)
}

/// The number of granted permits, and the total time.
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
            "relative to governor",
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
            let claim = format!("{name} relative to governor, {threads} threads");
            output.at_most(claim, times.ratio(place, governor), most);
        }
        if contestant.is_ours() && threads == 1 {
            output.at_most(format!("{name}, allocations"), allocations, 0.0);
        }
    }
    output.table(&table);
}
