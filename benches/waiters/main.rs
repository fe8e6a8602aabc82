//! Compares the cost of many waiters for one key with a semaphore: memory, and time to wake them.
//!
//! Tasks on a runtime with one thread wait for a permit of the embedded store or of a separate `redis-server`. The
//! limit equals the number of waiters, and one request has spent it. So all may depart when its window ends. The
//! semaphore also gets all permits at the same time. (The guard is longer than it takes to wake all tasks; otherwise,
//! the last tasks would miss their departures.)
//!
//! Memory is the heap usage while all tasks wait, less that of as many tasks that wait for nothing. So it includes the
//! future, the queue, the connection and the embedded store. Times are per waiter: until all of them wait, and from the
//! first departure to the last. Figures and ratios are medians over the rounds; cases run in turns.
//!
//! The departures are checked: never more than the limit in any window.

mod run;

use std::sync::Arc;
use std::time::Duration;

use tower_throttle_benches::rounds::{Rounds, median, turns};
use tower_throttle_benches::support::{self, Cell, Output, Progress, RedisServer, Table};

use self::run::{Kind, Run, run};

/// Number of waiters, length of the window and of the guard, and runs per round.
const SIZES: [Size; 2] = [
    Size {
        waiters: 1_000,
        span: Duration::from_millis(150),
        runs: 5,
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

#[derive(Clone, Copy)]
struct Size {
    waiters: usize,
    span: Duration,
    runs: usize,
}

fn main() -> anyhow::Result<()> {
    support::measure(
        "Compares the cost of many waiters for one key with a semaphore",
        measure,
    )
}

async fn measure(mut output: Output) -> anyhow::Result<()> {
    let server = Arc::new(RedisServer::start().await?);
    let contestants: Vec<(Size, Kind)> = SIZES
        .iter()
        .flat_map(|size| KINDS.map(|kind| (*size, kind)))
        .collect();
    let [mut bytes, mut join, mut wake] = Rounds::several(contestants.len());
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
            join.push(place, figure(|run| run.join));
            wake.push(place, figure(|run| run.wake));
        }
    }
    show(&contestants, [&bytes, &join, &wake], &mut output);
    output.finish()
}

fn show(contestants: &[(Size, Kind)], [bytes, join, wake]: [&Rounds; 3], output: &mut Output) {
    let mut table = Table::new(
        "cost of a waiter",
        &[
            "waiters",
            "for",
            "bytes with its task",
            "bytes",
            "ns to join",
            "ns to wake",
            "relative to the semaphore",
        ],
    );
    for (place, (size, kind)) in contestants.iter().enumerate() {
        if *kind == Kind::Pending {
            continue;
        }
        let pending = place - place % KINDS.len();
        let semaphore = pending + KINDS.len() - 1;
        let own = bytes.difference(place, pending);
        table.row([
            Cell::Count(size.waiters as u64),
            Cell::text(kind.name()),
            Cell::Figure(bytes.median(place)),
            Cell::Figure(own),
            Cell::Figure(join.median(place)),
            Cell::Figure(wake.median(place)),
            Cell::Ratio(wake.ratio(place, semaphore)),
        ]);
        // The larger of the sizes.
        if *kind != Kind::Semaphore && pending + KINDS.len() == contestants.len() {
            let (waiters, name) = (Cell::Count(size.waiters as u64), kind.name());
            let claim = format!("a waiter of {waiters}, {name}, bytes without its task");
            output.at_most(claim, own, MOST_BYTES);
        }
    }
    output.table(&table);
}
