//! What it takes to have many wait for one key, beside a semaphore: memory, and time to wake them.
//!
//! ```sh
//! cargo bench --bench waiters                     # a table
//! cargo bench --bench waiters -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! So many tasks on a runtime of one thread wait for a permit, on the embedded store or on a
//! `redis-server` of the benchmark's own. One request has spent the whole limit, which is as many as
//! wait: so all may depart at once when its window ends. The semaphore gets as many permits at once. (The guard is
//! long: with one that is shorter than it takes to wake them all, the last would miss their turns.)
//!
//! Memory is what is on the heap when all wait, by the allocator, less what as
//! many tasks take that wait for nothing: so it includes the future, and what the queue, the connection
//! and an embedded store hold. Time is from the first departure to the last, per waiter. Both are
//! medians over the rounds, in which all take turns: those of ratios, too.
//!
//! Bounds: at most 500 bytes per waiter; and to wake one of 100,000 takes at most 1.5 times as long as to
//! wake one of 1,000. And the departures are judged: never more than the limit in any window.

mod line;
mod run;

use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tower_throttle_peers::rounds::{Rounds, median, turns};
use tower_throttle_peers::support::{
    Cell, Options, Output, Progress, RedisServer, Table, until_asked_to_end,
};

use self::line::Kind;
use self::run::{Run, run};

/// How many wait, for how long the window and the guard are each, and how often in a round.
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

const MOST_BYTES: f64 = 500.0;
const MOST_RATIO: f64 = 1.5;

/// Measures what it takes to have many wait for one key, beside a semaphore.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy)]
struct Size {
    waiters: usize,
    span: Duration,
    runs: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    until_asked_to_end(measure(Output::new(cli.options))).await
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
                // A thread of its own: what it allocates is counted, and has a runtime of its own.
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
        "what a waiter takes",
        &[
            "waiters",
            "for",
            "bytes with its task",
            "bytes",
            "ns to wake one",
            "to the semaphore",
            "to 1,000 waiters",
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
            let claim = format!("{claim}, time to wake one, to 1,000 waiters");
            output.at_most(claim, wake.ratio(place, fewest), MOST_RATIO);
        }
    }
    output.table(&table);
}
