//! Runs tasks that wait for a limiter or a semaphore, and depart: [`run`].

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{FutureExt as _, future};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower_throttle::test_util::history::History;
use tower_throttle_benches::*;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Pending,
    Memory,
    Redis,
    Semaphore,
}

/// The cost of a waiter: bytes including its task, nanoseconds until all wait, and between departures.
pub(crate) struct Run {
    pub(crate) bytes: f64,
    pub(crate) join: f64,
    pub(crate) wake: f64,
}

#[derive(Default)]
struct TaskProgress {
    started: AtomicUsize,
    departures: Mutex<Vec<Instant>>,
}

struct Waiting {
    tasks: Vec<JoinHandle<anyhow::Result<()>>>,
    progress: Arc<TaskProgress>,
    run: Run,
}

/// For a limiter, the limit is spent first, so that no task departs before the window and the guard, `span` each, end.
pub(crate) fn run(
    kind: Kind,
    waiters: u32,
    span: Duration,
    server: &RedisServer,
) -> anyhow::Result<Run> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    let limiter = Limiter::builder().quota(Quota::new(waiters, span));
    let limiter = limiter.guard(span);
    let limiter = match kind {
        Kind::Pending => {
            let waiting = Waiting::start(&runtime, waiters, future::pending::<()>, |()| Ok(()));
            return Ok(waiting?.run);
        }
        Kind::Semaphore => {
            let semaphore = Arc::new(Semaphore::new(0));
            let wait = || semaphore.clone().acquire_owned();
            let waiting = Waiting::start(&runtime, waiters, wait, |permit| {
                permit?.forget();
                Ok(())
            })?;
            semaphore.add_permits(waiters as usize);
            return Ok(waiting.depart(&runtime)?.0);
        }
        Kind::Memory => limiter.build()?,
        Kind::Redis => limiter.store(runtime.block_on(store(server))?).build()?,
    };
    let key = Key::new("shared");
    runtime.block_on(async {
        limiter.reset(key.clone()).await?;
        limiter.acquire(key.clone()).cost(waiters).await
    })?;
    // The initial request departed at the latest then.
    let spent = Instant::now();
    let wait = || limiter.acquire(key.clone()).into_future();
    let waiting = Waiting::start(&runtime, waiters, wait, |permit| {
        ensure!(permit?.is_valid(), "the guard was too short");
        Ok(())
    })?;
    let (run, departures) = waiting.depart(&runtime)?;
    let all = departures.into_iter().map(|at| (at - spent, 1));
    let all = all.chain([(Duration::ZERO, waiters.into())]);
    let fault = all.collect::<History>().fault(&Quota::new(waiters, span));
    ensure!(fault.is_none(), "{fault:?} of {span:?}");
    Ok(run)
}

impl Waiting {
    /// Spawns the tasks, and returns when all of them wait.
    fn start<W: Future<Output: Send> + Send + 'static>(
        runtime: &Runtime,
        waiters: u32,
        wait: impl Fn() -> W,
        end: fn(W::Output) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let waiters = waiters as usize;
        let progress = Arc::new(TaskProgress::default());
        progress.departures.lock().reserve(waiters);
        let (mut tasks, start) = (Vec::new(), Instant::now());
        let allocated = allocation_counter::measure(|| {
            runtime.block_on(async {
                tasks.reserve(waiters);
                tasks.extend((0..waiters).map(|_| spawn(&progress, wait(), end)));
                while progress.started.load(Ordering::Relaxed) < waiters {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        });
        let run = Run {
            bytes: allocated.bytes_current as f64 / waiters as f64,
            join: start.elapsed().as_secs_f64() * 1e9 / waiters as f64,
            wake: f64::NAN,
        };
        let is_in_time = progress.departures.lock().is_empty();
        ensure!(is_in_time, "the window ended before all tasks waited");
        Ok(Self {
            tasks,
            progress,
            run,
        })
    }

    /// The times when all tasks departed.
    fn depart(mut self, runtime: &Runtime) -> anyhow::Result<(Run, Vec<Instant>)> {
        let waiters = self.tasks.len() as f64;
        runtime.block_on(async {
            for task in self.tasks {
                task.await??;
            }
            anyhow::Ok(())
        })?;
        let departures = std::mem::take(&mut *self.progress.departures.lock());
        let (Some(first), Some(last)) = (departures.iter().min(), departures.iter().max()) else {
            bail!("no request departed");
        };
        self.run.wake = (*last - *first).as_secs_f64() * 1e9 / waiters;
        Ok((self.run, departures))
    }
}

/// Combinators, because an async block would reserve space for the awaited future twice.
fn spawn<W: Future<Output: Send> + Send + 'static>(
    progress: &Arc<TaskProgress>,
    wait: W,
    end: fn(W::Output) -> anyhow::Result<()>,
) -> JoinHandle<anyhow::Result<()>> {
    let (starting, departing) = (progress.clone(), progress.clone());
    let started = future::lazy(move |_| starting.started.fetch_add(1, Ordering::Relaxed));
    tokio::spawn(started.then(|_| wait).map(move |result| {
        departing.departures.lock().push(Instant::now());
        end(result)
    }))
}
