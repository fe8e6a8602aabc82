//! Runs tasks that wait for a limiter or a semaphore, and depart: [`run`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use futures_util::{FutureExt as _, future};
use parking_lot::Mutex;
use support::redis_server::RedisServer;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower_throttle::key::Key;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::store;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Pending,
    Memory,
    Redis,
    Semaphore,
}

enum Target {
    Pending,
    Limiter {
        limiter: Limiter,
        key: Key,
        /// The time when the limit was spent.
        spent: Instant,
    },
    Semaphore(Arc<Semaphore>),
}

/// The cost of a waiter: bytes including its task, nanoseconds until all wait, and between departures.
pub(crate) struct Run {
    pub(crate) bytes: f64,
    pub(crate) join: f64,
    pub(crate) wake: f64,
}

struct TaskProgress {
    /// Number of tasks that have started to wait.
    started: AtomicUsize,
    departures: Mutex<Vec<Instant>>,
}

type Tasks = Vec<JoinHandle<anyhow::Result<()>>>;

pub(crate) fn run(
    kind: Kind,
    waiters: u32,
    span: Duration,
    server: &RedisServer,
) -> anyhow::Result<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let target = Target::new(kind, waiters, span, server);
    let target = runtime.block_on(target)?;
    let waiters = waiters as usize;
    let progress = Arc::new(TaskProgress {
        started: AtomicUsize::new(0),
        departures: Mutex::new(Vec::with_capacity(waiters)),
    });
    let (mut tasks, start) = (Ok(Vec::new()), Instant::now());
    let allocated = allocation_counter::measure(|| {
        tasks = runtime.block_on(enqueue(&target, waiters, &progress));
    });
    let join = start.elapsed().as_secs_f64() * 1e9 / waiters as f64;
    let bytes = allocated.bytes_current as f64 / waiters as f64;
    let wake = depart(&runtime, &target, tasks?, &progress, span)?;
    Ok(Run { bytes, join, wake })
}

/// Spawns the tasks, and returns when all of them wait.
async fn enqueue(
    target: &Target,
    waiters: usize,
    progress: &Arc<TaskProgress>,
) -> anyhow::Result<Tasks> {
    let mut tasks = Tasks::with_capacity(waiters);
    for _ in 0..waiters {
        tasks.push(match target {
            Target::Pending => spawn(progress, future::pending::<()>(), |()| Ok(())),
            Target::Limiter { limiter, key, .. } => {
                let wait = limiter.acquire(key.clone()).into_future();
                spawn(progress, wait, |permit| {
                    ensure!(permit?.is_valid(), "the guard was too short");
                    Ok(())
                })
            }
            Target::Semaphore(semaphore) => {
                spawn(progress, semaphore.clone().acquire_owned(), |permit| {
                    permit?.forget();
                    Ok(())
                })
            }
        });
    }
    while progress.started.load(Ordering::Relaxed) < waiters {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ensure!(
        progress.departures.lock().is_empty(),
        "the window ended before all tasks waited"
    );
    Ok(tasks)
}

/// Combinators, because an async block would reserve space for the awaited future twice.
fn spawn<T: Send + 'static>(
    progress: &Arc<TaskProgress>,
    wait: impl Future<Output = T> + Send + 'static,
    end: fn(T) -> anyhow::Result<()>,
) -> JoinHandle<anyhow::Result<()>> {
    let (starting, departing) = (progress.clone(), progress.clone());
    let started = future::lazy(move |_| starting.started.fetch_add(1, Ordering::Relaxed));
    tokio::spawn(started.then(|_| wait).map(move |result| {
        departing.departures.lock().push(Instant::now());
        end(result)
    }))
}

/// Nanoseconds between departures. Fails if more requests departed than the limit allows.
fn depart(
    runtime: &Runtime,
    target: &Target,
    tasks: Tasks,
    progress: &TaskProgress,
    window: Duration,
) -> anyhow::Result<f64> {
    let waiters = tasks.len();
    match target {
        Target::Pending => return Ok(f64::NAN),
        Target::Semaphore(semaphore) => semaphore.add_permits(waiters),
        Target::Limiter { .. } => {}
    }
    runtime.block_on(async {
        for task in tasks {
            task.await??;
        }
        anyhow::Ok(())
    })?;
    let departures = progress.departures.lock();
    let (Some(first), Some(last)) = (departures.iter().min(), departures.iter().max()) else {
        bail!("no request departed");
    };
    if let Target::Limiter { spent, .. } = target {
        let all = departures.iter().map(|at| (*at - *spent, 1));
        // The initial request departed at the latest when `acquire` returned.
        let all = all.chain([(Duration::ZERO, waiters as u64)]);
        let most = all.collect::<History>().most_in_any(window);
        ensure!(
            most <= waiters as u64,
            "{most} requests departed within {window:?}"
        );
    }
    Ok((*last - *first).as_secs_f64() * 1e9 / waiters as f64)
}

impl Target {
    /// Spends the limit, so that no task departs before the end of the window and the guard, `span` each.
    async fn new(
        kind: Kind,
        limit: u32,
        span: Duration,
        server: &RedisServer,
    ) -> anyhow::Result<Self> {
        let limiter = Limiter::builder()
            .quota(Quota::new(limit, span))
            .guard(span);
        let limiter = match kind {
            Kind::Pending => return Ok(Self::Pending),
            Kind::Semaphore => return Ok(Self::Semaphore(Arc::new(Semaphore::new(0)))),
            Kind::Memory => limiter.build()?,
            Kind::Redis => limiter.store(store(server).await?).build()?,
        };
        let key = Key::new("shared");
        limiter.reset(key.clone()).await?;
        limiter.acquire(key.clone()).cost(limit).await?;
        Ok(Self::Limiter {
            limiter,
            key,
            spent: Instant::now(),
        })
    }
}
