//! Tasks that wait, and depart: [`run`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use futures_util::{FutureExt as _, future};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tower_throttle::test_util::history::History;
use tower_throttle_peers::support::RedisServer;

use crate::line::{Kind, Line};

/// What one waiter took: bytes, its task included, and nanoseconds from one departure to the next.
pub(crate) struct Run {
    pub(crate) bytes: f64,
    pub(crate) wake: f64,
}

/// What the tasks tell.
struct Told {
    /// How many have come to wait.
    came: AtomicUsize,
    departures: Mutex<Vec<Instant>>,
}

type Tasks = Vec<JoinHandle<anyhow::Result<()>>>;

/// Lets so many wait on a runtime of this thread.
pub(crate) fn run(
    kind: Kind,
    waiters: usize,
    span: Duration,
    server: &RedisServer,
) -> anyhow::Result<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let line = Line::new(kind, waiters as u32, span, server);
    let line = runtime.block_on(line)?;
    let told = Arc::new(Told {
        came: AtomicUsize::new(0),
        departures: Mutex::new(Vec::with_capacity(waiters)),
    });
    let mut tasks = Ok(Vec::new());
    let allocated = allocation_counter::measure(|| {
        tasks = runtime.block_on(gather(&line, waiters, &told));
    });
    let bytes = allocated.bytes_current as f64 / waiters as f64;
    let wake = depart(&runtime, &line, tasks?, &told, span)?;
    Ok(Run { bytes, wake })
}

/// Spawns the tasks, and returns once all wait.
async fn gather(line: &Line, waiters: usize, told: &Arc<Told>) -> anyhow::Result<Tasks> {
    let mut tasks = Tasks::with_capacity(waiters);
    // By combinators: an async block would keep a second place for the future that it awaits.
    for _ in 0..waiters {
        let (coming, departing) = (told.clone(), told.clone());
        let came = future::lazy(move |_| coming.came());
        tasks.push(match line {
            Line::Pending => {
                let wait = future::pending::<()>();
                tokio::spawn(came.then(|()| wait).map(move |()| {
                    departing.depart();
                    Ok(())
                }))
            }
            Line::Limiter { limiter, key, .. } => {
                let wait = limiter.acquire(key.clone());
                tokio::spawn(came.then(|()| wait).map(move |permit| {
                    departing.depart();
                    ensure!(permit?.is_valid(), "the guard was too short");
                    Ok(())
                }))
            }
            Line::Semaphore(semaphore) => {
                let wait = semaphore.clone().acquire_owned();
                tokio::spawn(came.then(|()| wait).map(move |permit| {
                    departing.depart();
                    permit?.forget();
                    Ok(())
                }))
            }
        });
    }
    while told.came.load(Ordering::Relaxed) < waiters {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ensure!(
        told.departures.lock().is_empty(),
        "the window was over before all waited"
    );
    Ok(tasks)
}

/// Nanoseconds from one departure to the next; fails if there were more than the limit.
fn depart(
    runtime: &Runtime,
    line: &Line,
    tasks: Tasks,
    told: &Told,
    window: Duration,
) -> anyhow::Result<f64> {
    let waiters = tasks.len();
    match line {
        Line::Pending => return Ok(f64::NAN),
        Line::Semaphore(semaphore) => semaphore.add_permits(waiters),
        Line::Limiter { .. } => {}
    }
    runtime.block_on(async {
        for task in tasks {
            task.await??;
        }
        anyhow::Ok(())
    })?;
    let departures = told.departures.lock();
    let (Some(first), Some(last)) = (departures.iter().min(), departures.iter().max()) else {
        bail!("nobody departed");
    };
    if let Some(spent) = line.spent() {
        let all = departures.iter().map(|at| (*at - spent, 1));
        // What was spent at first counts as of when it was known to be.
        let all = all.chain([(Duration::ZERO, waiters as u64)]);
        let most = all.collect::<History>().most_in_any(window);
        ensure!(most <= waiters as u64, "{most} departed within {window:?}");
    }
    Ok((*last - *first).as_secs_f64() * 1e9 / waiters as f64)
}

impl Told {
    fn came(&self) {
        self.came.fetch_add(1, Ordering::Relaxed);
    }

    fn depart(&self) {
        self.departures.lock().push(Instant::now());
    }
}
