//! Cost per waiter by the number of waiters on one key: [`measure`].

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tower_throttle::key::Key;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota};

use tower_throttle_benches::support::{Cell, Output, Progress, RedisServer, Table, median};

const WAITERS: [u32; 6] = [1, 10, 100, 1_000, 10_000, 100_000];
const TIME: Duration = Duration::from_secs(12);
const WINDOW: Duration = Duration::from_millis(10);
/// The cost of a wake-up grows only because of cache misses. Enqueuing has more of them, because it also creates the
/// task.
const MOST_WAKING_RATIO: f64 = 1.5;
const MOST_JOINING_RATIO: f64 = 2.5;

/// Microseconds per waiter.
struct Waits {
    joining: f64,
    waking: f64,
}

pub(crate) async fn measure(output: &mut Output, progress: &mut Progress) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let store = server.store().await?;
    let mut table = Table::new(
        "waiters on one key",
        &[
            "waiters",
            "us until all wait",
            "per waiter",
            "us until all have departed",
            "per waiter",
        ],
    );
    progress.begin(&format!("waiters, {WAITERS:?} in turns"));
    let rounds = rounds(&store, output.options().time(TIME)).await?;
    let over = |figure: &dyn Fn(&[Waits]) -> f64| {
        median(rounds.iter().map(|round| figure(round)).collect())
    };
    let mut levels = Vec::new();
    for (place, waiters) in WAITERS.into_iter().enumerate() {
        let level = Waits {
            joining: over(&|round| round[place].joining),
            waking: over(&|round| round[place].waking),
        };
        table.row([
            Cell::Count(waiters.into()),
            Cell::Figure(level.joining * f64::from(waiters)),
            Cell::Ratio(level.joining),
            Cell::Figure(level.waking * f64::from(waiters)),
            Cell::Ratio(level.waking),
        ]);
        levels.push(level);
    }
    output.table(&table);
    let growth = over(&|round| round[5].waking / round[3].waking);
    let claim = |what| format!("waiters, 100,000 relative to 1,000, {what} per waiter");
    output.at_most(claim("time to wake up"), growth, MOST_WAKING_RATIO);
    let growth = over(&|round| round[5].joining / round[3].joining);
    output.at_most(claim("time until all wait"), growth, MOST_JOINING_RATIO);
    Ok(())
}

/// Each round runs all numbers of waiters, so that other load on the machine affects all of them. Small numbers run
/// several times per round.
async fn rounds(store: &RedisStore, time: Duration) -> anyhow::Result<Vec<Vec<Waits>>> {
    // The guard, which has to be longer than it takes until all requests wait.
    let mut guards =
        WAITERS.map(|waiters| Duration::from_millis(20) + Duration::from_micros(8) * waiters);
    let (mut rounds, since) = (Vec::new(), Instant::now());
    while rounds.is_empty() || since.elapsed() < time {
        let mut round = Vec::new();
        for (waiters, guard) in WAITERS.into_iter().zip(&mut guards) {
            let times = (10_000 / waiters).clamp(1, 8) as usize;
            let mut all = Vec::new();
            while all.len() < times {
                match wait(store, waiters, *guard).await? {
                    Some(waits) => all.push(waits),
                    None => *guard *= 2,
                }
            }
            let over = |figure: fn(&Waits) -> f64| median(all.iter().map(figure).collect());
            round.push(Waits {
                joining: over(|waits| waits.joining),
                waking: over(|waits| waits.waking),
            });
        }
        rounds.push(round);
    }
    Ok(rounds)
}

/// `None` if a request departed before all waited.
async fn wait(store: &RedisStore, waiters: u32, guard: Duration) -> anyhow::Result<Option<Waits>> {
    let limiter = Limiter::builder()
        .store(store.clone())
        .quota(Quota::new(waiters, WINDOW))
        .guard(guard)
        .build()?;
    let key = Key::new(format!("queue:{waiters}"));
    limiter.reset(key.clone()).await?;
    // One request spends the whole limit, so that all others may depart at the same time.
    limiter.acquire(key.clone()).cost(waiters).await?;

    let since = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..waiters {
        let permit = limiter.acquire(key.clone());
        tasks.spawn(async move { permit.await.map(|_| Instant::now()) });
    }
    // Tasks run in the order in which they were spawned.
    tokio::spawn(async {}).await?;
    let joined = since.elapsed();
    let mut departures = Vec::with_capacity(waiters as usize);
    while let Some(departure) = tasks.join_next().await {
        departures.push(departure??.duration_since(since));
    }
    let first = departures.iter().min().copied().unwrap_or_default();
    let last = departures.iter().max().copied().unwrap_or_default();
    let per_waiter = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(waiters);
    Ok((joined < first).then(|| Waits {
        joining: per_waiter(joined),
        waking: per_waiter(last - first),
    }))
}
