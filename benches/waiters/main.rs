//! Compares the cost of many waiters for one key with a semaphore: memory, and time to wake them.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench waiters                     # a table
//! cargo bench -p tower-throttle-benches --bench waiters -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! Tasks on a runtime with one thread wait for a permit of the embedded store or of a separate `redis-server`. The
//! limit equals the number of waiters, and one request has spent it. So all may depart when its window ends. The
//! semaphore also gets all permits at the same time. (The guard is longer than it takes to wake all tasks; otherwise,
//! the last tasks would miss their departures.)
//!
//! Memory is the heap usage while all tasks wait, less that of as many tasks that wait for nothing. So it includes the
//! future, the queue, the connection and the embedded store. Time is from the first departure to the last, per waiter.
//! Figures and ratios are medians over the rounds; cases run in turns.
//!
//! Bounds: at most 250 bytes per waiter; waking one of 100,000 takes at most 1.5 times as long as
//! waking one of 1,000. The departures are checked: never more than the limit in any window.

mod run;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use tower_throttle_benches::rounds::{Rounds, median, turns};
use tower_throttle_benches::support::{
    Cell, Output, Progress, RedisServer, Table, until_asked_to_end,
};

use self::run::{Run, run};
use self::waiting::Kind;

/// Number of waiters, length of the window and of the guard, and runs per round.
const SIZES: [Size; 3] = [
    Size {
        waiters: 1_000,
        span: Duration::from_millis(150),
        runs: 5,
    },
    Size {
        waiters: 10_000,
        span: Duration::from_millis(400),
        runs: 3,
    },
    Size {
        waiters: 100_000,
        span: Duration::from_secs(2),
        runs: 1,
    },
];
const KINDS: [Kind; 4] = [Kind::Pending, Kind::Memory, Kind::Redis, Kind::Semaphore];
const ROUNDS: u64 = 3;

const MOST_BYTES: f64 = 250.0;
const MOST_RATIO: f64 = 1.5;

#[derive(Clone, Copy)]
struct Size {
    waiters: usize,
    span: Duration,
    runs: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    until_asked_to_end(measure(Output::parse(
        "Compares the cost of many waiters for one key with a semaphore",
    )))
    .await
}

async fn measure(mut output: Output) -> anyhow::Result<()> {
    let server = Arc::new(RedisServer::start().await?);
    let contestants: Vec<(Size, Kind)> = SIZES
        .iter()
        .flat_map(|size| KINDS.map(|kind| (*size, kind)))
        .collect();
    let (mut bytes, mut wake) = (
        Rounds::new(contestants.len()),
        Rounds::new(contestants.len()),
    );
    let rounds = output.options().count(ROUNDS);
    let mut progress = Progress::new(rounds as usize * contestants.len());
    for round in 0..rounds {
        for place in turns(round as usize, contestants.len()) {
            let (size, kind) = contestants[place];
            progress.begin(&format!("{} waiters, {}", size.waiters, kind.name()));
            let mut runs = Vec::new();
            for _ in 0..size.runs {
                let server = server.clone();
                // A separate thread with its own runtime, because allocations are counted per thread.
                let run = move || run(kind, size.waiters, size.span, &server);
                runs.push(tokio::task::spawn_blocking(run).await??);
            }
            let figure = |figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
            bytes.push(place, figure(|run| run.bytes));
            wake.push(place, figure(|run| run.wake));
        }
    }
    show(&contestants, &bytes, &wake, &mut output);
    output.finish()
}

fn show(contestants: &[(Size, Kind)], bytes: &Rounds, wake: &Rounds, output: &mut Output) {
    let mut table = Table::new(
        "cost of a waiter",
        &[
            "waiters",
            "for",
            "bytes with its task",
            "bytes",
            "ns to wake one",
            "relative to the semaphore",
            "relative to 1,000 waiters",
        ],
    );
    for (place, (size, kind)) in contestants.iter().enumerate() {
        if *kind == Kind::Pending {
            continue;
        }
        let pending = place - place % KINDS.len();
        let (semaphore, fewest) = (pending + KINDS.len() - 1, place % KINDS.len());
        let own = bytes.difference(place, pending);
        table.row([
            Cell::Count(size.waiters as u64),
            Cell::text(kind.name()),
            Cell::Figure(bytes.median(place)),
            Cell::Figure(own),
            Cell::Figure(wake.median(place)),
            Cell::Ratio(wake.ratio(place, semaphore)),
            Cell::Ratio(wake.ratio(place, fewest)),
        ]);
        if *kind == Kind::Semaphore {
            continue;
        }
        let claim = format!("{}, {} waiters", kind.name(), size.waiters);
        output.at_most(format!("{claim}, bytes per waiter"), own, MOST_BYTES);
        if pending + KINDS.len() == contestants.len() {
            let claim = format!("{claim}, time to wake one, relative to 1,000 waiters");
            output.at_most(claim, wake.ratio(place, fewest), MOST_RATIO);
        }
    }
    output.table(&table);
}
