//! Compares the overhead of tower layers that limit rates, for calls that need not wait.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench layer                     # a table
//! cargo bench -p tower-throttle-benches --bench layer -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! One thread calls a service that responds immediately: bare, through `Throttle` with the embedded store, and through
//! the other layers. It does not reach the limits. Layers run in turns, in blocks of calls. Figures and differences are
//! medians over the rounds. The allocator counts allocations, in separate blocks.
//!
//! Bounds: `Throttle` adds at most 300 ns to a call, and no allocation. (The table also shows
//! `Throttle` with a `Departure` in the response's extensions, which allocate. No bound applies to that.)

mod layered;

use std::time::Instant;

use tower_throttle_benches::rounds::{Rounds, turns};
use tower_throttle_benches::support::{Cell, Output, Progress, Table};

use self::layered::Layered;

const WARM_UP: u64 = 100_000;
const BLOCK: u64 = 10_000;
const ROUNDS: u64 = 200;

const MOST_NANOS: f64 = 300.0;

fn main() -> anyhow::Result<()> {
    let mut output = Output::parse("Compares the overhead of tower layers");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Some layers create timers when they are built.
    let _entered = runtime.enter();
    let mut progress = Progress::new(1);
    progress.begin("layers around a service that is ready");
    let mut all = Layered::all()?;
    for layered in &mut all {
        layered.call(&runtime, WARM_UP)?;
    }
    let mut times = Rounds::new(all.len());
    let count = all.len();
    for round in 0..output.options().count(ROUNDS) {
        for place in turns(round as usize, count) {
            let start = Instant::now();
            all[place].call(&runtime, BLOCK)?;
            times.push(place, start.elapsed().as_secs_f64() * 1e9 / BLOCK as f64);
        }
    }
    let mut allocations = Vec::new();
    for layered in &mut all {
        allocations.push(layered.allocations(&runtime)?);
    }
    let mut table = Table::new(
        "overhead of a layer, in nanoseconds",
        &[
            "layer",
            "ns per call",
            "ns more than bare",
            "allocations per call",
            "more than bare",
        ],
    );
    for (place, layered) in all.iter().enumerate() {
        let (name, added) = (layered.name(), times.difference(place, 0));
        let more = allocations[place] - allocations[0];
        table.row([
            Cell::text(name),
            Cell::Figure(times.median(place)),
            Cell::Figure(added),
            Cell::Figure(allocations[place]),
            Cell::Figure(more),
        ]);
        if layered.is_bound() {
            output.at_most(format!("{name}, ns more than bare"), added, MOST_NANOS);
            output.at_most(format!("{name}, allocations more than bare"), more, 0.0);
        }
    }
    output.table(&table);
    output.finish()
}
