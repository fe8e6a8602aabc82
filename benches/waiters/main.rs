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

use tower_throttle_benches::*;

use self::run::{Kind, Run, run};

/// Number of waiters, milliseconds of the window and of the guard, and runs per round.
const SIZES: [(u32, u64, usize); 2] = [(1_000, 150, 5), (100_000, 2_000, 1)];
const KINDS: [(Kind, &str); 4] = [
    (Kind::Pending, "nothing"),
    (Kind::Memory, "tower-throttle, embedded"),
    (Kind::Redis, "tower-throttle, Redis"),
    (Kind::Semaphore, "tokio's Semaphore"),
];
const ROUNDS: u32 = 3;

const MOST_BYTES: f64 = 250.0;

fn main() -> anyhow::Result<()> {
    measure(0, run_all)
}

async fn run_all(output: &mut Output) -> anyhow::Result<()> {
    let server = Arc::new(RedisServer::start());
    let contestants = SIZES.map(|size| KINDS.map(|kind| (size, kind)));
    let contestants = contestants.as_flattened();
    let [mut bytes, mut join, mut wake] = Rounds::several(contestants.len());
    for (_, place) in turns(output.count(ROUNDS) as usize, contestants.len()) {
        let ((waiters, span, times), (kind, name)) = contestants[place];
        eprintln!("{waiters} waiters, {name}");
        let mut runs = Vec::new();
        for _ in 0..times {
            let server = server.clone();
            // A separate thread with its own runtime, because allocations are counted per thread.
            let run = move || run(kind, waiters, Duration::from_millis(span), &server);
            runs.push(tokio::task::spawn_blocking(run).await??);
        }
        let figure = |figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
        bytes.push(place, figure(|run| run.bytes));
        join.push(place, figure(|run| run.join));
        wake.push(place, figure(|run| run.wake));
    }
    let mut table = Table::new(
        "cost of a waiter",
        "waiters | for | bytes with its task | bytes | ns to join | ns to wake | relative to the semaphore",
    );
    for (place, &((waiters, ..), (kind, name))) in contestants.iter().enumerate() {
        if kind == Kind::Pending {
            continue;
        }
        let pending = place - place % KINDS.len();
        let semaphore = pending + KINDS.len() - 1;
        let own = bytes.difference(place, pending);
        table.row([
            count(waiters),
            text(name),
            figure(bytes.median(place)),
            figure(own),
            figure(join.median(place)),
            figure(wake.median(place)),
            ratio(wake.ratio(place, semaphore)),
        ]);
        // The larger of the sizes.
        if kind != Kind::Semaphore && semaphore + 1 == contestants.len() {
            let waiters = count(waiters);
            let claim = format!("a waiter of {waiters}, {name}, bytes without its task");
            output.at_most(claim, own, MOST_BYTES);
        }
    }
    println!("{table}");
    Ok(())
}
