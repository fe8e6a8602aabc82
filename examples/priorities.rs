//! Interactive requests and a batch job share a quota: the wait of the interactive ones without and with a priority.
//!
//! ```sh
//! cargo run --example priorities                                  # in one process
//! REDIS_URL=redis://127.0.0.1/ cargo run --example priorities     # over Redis
//! ```

use std::env;
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::future::try_join_all;
use tokio::time::sleep;
use tower_throttle::store::{MemoryStore, RedisStore};
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Limiter, LimiterBuilder, Priority, Quota};

const KEY: &str = "api.example.com";
const LIMIT: u32 = 50;
const BURST: u32 = 5;

/// Limiters, as in so many replicas, and the jobs of each.
const REPLICAS: usize = 3;
const JOBS: usize = 50;

const INTERACTIVE: u32 = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let without = median_wait(Priority::Normal).await?;
    let with = median_wait(Priority::High).await?;
    println!(
        "median wait of interactive requests: {without:.2?} without, {with:.2?} with a priority"
    );
    ensure!(with < without, "priorities have no effect");
    Ok(())
}

/// The median wait of interactive requests of this priority, beside jobs.
async fn median_wait(priority: Priority) -> anyhow::Result<Duration> {
    let quota = Quota::per_second(LIMIT).algorithm(Algorithm::Gcra { burst: BURST });
    let limiters = &limiters(Limiter::builder().quota(quota)).await?;
    // On Redis, the key may have been used before.
    limiters[0].reset(KEY).await?;
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
    let history: History = jobs.into_iter().chain(departures).collect();
    ensure!(
        history.burst(quota.window() / LIMIT) <= BURST.into(),
        "the quota was exceeded:\n{history:?}"
    );
    waits.sort();
    Ok(waits[waits.len() / 2])
}

/// Limiters that share a store.
async fn limiters(builder: LimiterBuilder) -> anyhow::Result<Vec<Limiter>> {
    let builder = match env::var("REDIS_URL") {
        Ok(url) => builder.store(RedisStore::connect(&url).await?),
        Err(_) => builder.store(MemoryStore::new()),
    };
    let limiters = (0..REPLICAS).map(|_| builder.clone().build());
    Ok(limiters.collect::<Result<_, _>>()?)
}
