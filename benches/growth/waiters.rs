//! More and more waiters on one key: [`measure`].

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tower_throttle::key::Key;
use tower_throttle::store::{Ask, RedisStore, Reserve, Store as _};
use tower_throttle::{Limiter, Quota};

use crate::counting::Counting;
use crate::median;
use crate::plot::{Chart, Panel};
use crate::support::{Cell, Output, Progress, RedisServer, Table};

pub(crate) const WAITERS: [u32; 6] = [1, 10, 100, 1_000, 10_000, 100_000];
const TIME: Duration = Duration::from_millis(2_500);
const WINDOW: Duration = Duration::from_millis(10);
/// A wake-up costs the same however many wait, but for memory that caches do not hold; and of that, a
/// caller who asks takes more, as his task is made then.
const MOST_WAKING_RATIO: f64 = 1.5;
const MOST_ASKING_RATIO: f64 = 2.0;

/// Microseconds per waiter.
struct Round {
    asking: f64,
    waking: f64,
}

pub(crate) async fn measure(output: &mut Output, progress: &mut Progress) -> anyhow::Result<Chart> {
    let server = RedisServer::start().await?;
    let store = server.store().await?;
    let mut table = Table::new(
        "waiters on one key",
        &[
            "waiters",
            "us until all hold slots",
            "per waiter",
            "us until all that are due have departed",
            "per waiter",
        ],
    );
    let mut levels = Vec::new();
    for waiters in WAITERS {
        progress.begin(&format!("waiters, {waiters}"));
        let level = level(&store, waiters, output.options().time(TIME)).await?;
        table.row([
            Cell::Count(waiters.into()),
            Cell::Figure(level.asking * f64::from(waiters)),
            Cell::Ratio(level.asking),
            Cell::Figure(level.waking * f64::from(waiters)),
            Cell::Ratio(level.waking),
        ]);
        levels.push(level);
    }
    output.table(&table);
    let growth = |figure: fn(&Round) -> f64| figure(&levels[5]) / figure(&levels[3]);
    let claim = |what| format!("waiters, 100,000 to 1,000, {what} per waiter");
    output.at_most(
        claim("time to wake up"),
        growth(|it| it.waking),
        MOST_WAKING_RATIO,
    );
    output.at_most(
        claim("time until all hold slots"),
        growth(|it| it.asking),
        MOST_ASKING_RATIO,
    );
    Ok(chart(&levels))
}

/// Medians over the rounds of so long, and three at least.
async fn level(store: &RedisStore, waiters: u32, time: Duration) -> anyhow::Result<Round> {
    // What a departure may be late by, which has to be long enough for all of them.
    let mut guard = Duration::from_millis(20) + Duration::from_micros(15) * waiters;
    let (mut rounds, since) = (Vec::new(), Instant::now());
    while rounds.len() < 3 || since.elapsed() < time {
        match round(store, waiters, guard).await? {
            Some(round) => rounds.push(round),
            None => guard *= 2,
        }
    }
    let over = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    Ok(Round {
        asking: over(|round| round.asking),
        waking: over(|round| round.waking),
    })
}

/// `None` if the first slot came before all had one.
async fn round(store: &RedisStore, waiters: u32, guard: Duration) -> anyhow::Result<Option<Round>> {
    let store = Counting::new(store.clone());
    let limiter = Limiter::builder()
        .store(store.clone())
        .quota(Quota::new(waiters, WINDOW))
        .guard(guard)
        .build()?;
    let key = Key::new(format!("line:{waiters}"));
    limiter.reset(key.clone()).await?;
    // The limiter's first call is to be none of those that count: it measures the way to the store.
    limiter.acquire("other").await?;
    // All of the limit departs as one request, so all who come then have their slots at one time.
    let asks = [Ask {
        count: 1,
        cost: waiters,
        max_wait: 0,
    }];
    let policy = limiter.policy();
    let mut reserve = Reserve::new(&key, &policy);
    reserve.asks = &asks;
    store.reserve(&reserve).await?;
    store.forget();

    let since = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..waiters {
        let permit = limiter.acquire(key.clone());
        tasks.spawn(async move { permit.await.map(|_| Instant::now()) });
    }
    store.wait_for(waiters).await;
    let asked = since.elapsed();
    let mut departures = Vec::with_capacity(waiters as usize);
    while let Some(departure) = tasks.join_next().await {
        departures.push(departure??.duration_since(since));
    }
    let first = departures.iter().min().copied().unwrap_or_default();
    let last = departures.iter().max().copied().unwrap_or_default();
    let per_waiter = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(waiters);
    Ok((asked < first).then(|| Round {
        asking: per_waiter(asked),
        waking: per_waiter(last - first),
    }))
}

fn chart(levels: &[Round]) -> Chart {
    let line = |from: usize, figure: fn(&Round) -> f64| {
        let places = WAITERS.iter().map(|waiters| f64::from(*waiters));
        let line = places.zip(levels.iter().map(figure));
        line.skip(from).collect::<Vec<_>>()
    };
    let asking = Panel::new("us per waiter until all hold slots", "waiters")
        .logarithmic()
        .line("", line(0, |level| level.asking));
    // A single one departs when it is due.
    let waking = Panel::new("us per waiter until all that are due are gone", "waiters")
        .line("", line(1, |level| level.waking));
    Chart::new("growth-waiters", [asking, waking])
}
