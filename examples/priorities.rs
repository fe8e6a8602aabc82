//! Requests of several kinds spend one quota: interactive requests beside jobs, three tenants, and jobs under a flood.
//!
//! ```sh
//! cargo run --example priorities                                  # in one process
//! REDIS_URL=redis://127.0.0.1/ cargo run --example priorities     # over Redis
//! ```

use std::time::{Duration, Instant};
use std::{array, env, process};

use anyhow::ensure;
use futures_util::future::try_join_all;
use futures_util::stream::{FuturesUnordered, TryStreamExt};
use tokio::time::sleep;
use tower_throttle::store::{MemoryStore, RedisStore};
use tower_throttle::test_util::history::History;
use tower_throttle::{Acquire, Algorithm, Limiter, LimiterBuilder, Priority, Quota};

const KEY: &str = "api.example.com";
const LIMIT: u32 = 50;
const BURST: u32 = 5;

/// Limiters, as in so many replicas, and the jobs of each.
const REPLICAS: usize = 3;
const JOBS: usize = 50;

const INTERACTIVE: u32 = 10;

/// The first departures, before all replicas know of each other; those that are looked at; the rest are cancelled.
const FIRST: usize = 20;
const DEPARTURES: usize = 160;

/// The requests of a kind.
type Kind = fn(&Limiter) -> Acquire;

const TENANTS: [Kind; 3] = [
    |limiter| limiter.acquire(KEY).share("a", 1),
    |limiter| limiter.acquire(KEY).share("b", 2),
    |limiter| limiter.acquire(KEY).share("c", 5),
];

const JOBS_IN_A_FLOOD: [Kind; 2] = [
    |limiter| limiter.acquire(KEY).priority(Priority::Low),
    |limiter| limiter.acquire(KEY).priority(Priority::High),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let builder = |name| Limiter::builder().name(name).quota(quota());
    let reserving = builder("reserve").reserve(Priority::Low, 0.1);
    let (without, with, tenants, starved, reserved) = tokio::try_join!(
        median_wait(builder("arrival"), Priority::Normal),
        median_wait(builder("priority"), Priority::High),
        parts(builder("shares"), TENANTS),
        parts(builder("flood"), JOBS_IN_A_FLOOD),
        parts(reserving, JOBS_IN_A_FLOOD),
    )?;

    println!(
        "median wait of interactive requests: {without:.2?} without, {with:.2?} with a priority"
    );
    ensure!(with < without, "priorities have no effect");

    let [a, b, c] = tenants;
    println!("parts of tenants with weights of 1, 2 and 5: {a:.1}%, {b:.1}%, {c:.1}%");
    for (part, weight) in [(a, 1.0), (b, 2.0), (c, 5.0)] {
        let expected = 100.0 * weight / 8.0;
        ensure!((part - expected).abs() < 4.0, "{part}% is not {expected}%");
    }

    let ([starved, _], [reserved, _]) = (starved, reserved);
    println!("part of jobs under a flood: {starved:.1}% without, {reserved:.1}% with a reserve");
    ensure!(starved < 2.0, "{starved}% went before the flood");
    ensure!((reserved - 10.0).abs() < 3.0, "{reserved}% is not 10%");
    Ok(())
}

fn quota() -> Quota {
    Quota::per_second(LIMIT).algorithm(Algorithm::Gcra { burst: BURST })
}

/// The median wait of interactive requests of this priority, beside jobs.
async fn median_wait(builder: LimiterBuilder, priority: Priority) -> anyhow::Result<Duration> {
    let limiters = &limiters(builder).await?;
    let begun = Instant::now();
    let jobs = limiters
        .iter()
        .flat_map(|limiter| (0..JOBS).map(move |_| limiter));
    let jobs = try_join_all(jobs.map(|limiter| async move {
        let priority = match priority {
            Priority::Normal => Priority::Normal,
            _ => Priority::Low,
        };
        limiter.acquire(KEY).priority(priority).await?;
        anyhow::Ok(begun.elapsed())
    }));
    let interactive = try_join_all((0..INTERACTIVE).map(|nth| async move {
        sleep(Duration::from_millis(200) * (nth + 1)).await;
        let asked = Instant::now();
        let limiter = &limiters[nth as usize % limiters.len()];
        limiter.acquire(KEY).priority(priority).await?;
        anyhow::Ok((asked.elapsed(), begun.elapsed()))
    }));
    let (jobs, interactive) = tokio::try_join!(jobs, interactive)?;
    let (mut waits, departures): (Vec<_>, Vec<_>) = interactive.into_iter().unzip();
    check(jobs.into_iter().chain(departures))?;
    waits.sort();
    Ok(waits[waits.len() / 2])
}

/// The part of each kind in the departures, in percent, while requests of all kinds wait in all replicas.
async fn parts<const N: usize>(
    builder: LimiterBuilder,
    kinds: [Kind; N],
) -> anyhow::Result<[f64; N]> {
    let limiters = limiters(builder).await?;
    let begun = Instant::now();
    let mut waiting = FuturesUnordered::new();
    for limiter in &limiters {
        for (kind, acquire) in kinds.into_iter().enumerate() {
            waiting.extend((0..DEPARTURES / 2).map(|_| async move {
                acquire(limiter).await?;
                anyhow::Ok((kind, begun.elapsed()))
            }));
        }
    }
    let mut departed = Vec::new();
    while departed.len() < FIRST + DEPARTURES {
        departed.extend(waiting.try_next().await?);
    }
    check(departed.iter().map(|(_, at)| *at))?;
    let of = |kind| departed[FIRST..].iter().filter(|it| it.0 == kind).count();
    let percent = |kind| 100.0 * of(kind) as f64 / DEPARTURES as f64;
    Ok(array::from_fn(percent))
}

/// Fails if there were too many departures at any time.
fn check(departures: impl Iterator<Item = Duration>) -> anyhow::Result<()> {
    let history: History = departures.collect();
    ensure!(
        history.burst(quota().window() / LIMIT) <= BURST.into(),
        "the quota was exceeded:\n{history:?}"
    );
    Ok(())
}

/// Limiters that share a store.
async fn limiters(builder: LimiterBuilder) -> anyhow::Result<Vec<Limiter>> {
    let builder = match env::var("REDIS_URL") {
        Ok(url) => {
            // Nothing is left of an earlier run.
            let prefix = format!("example-{}", process::id());
            builder.store(RedisStore::connect(&url).await?.prefix(&prefix)?)
        }
        Err(_) => builder.store(MemoryStore::new()),
    };
    let limiters = (0..REPLICAS).map(|_| builder.clone().build());
    Ok(limiters.collect::<Result<_, _>>()?)
}
