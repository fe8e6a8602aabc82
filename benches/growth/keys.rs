//! Cost per permit by the number of keys, with random keys: [`measure`].

use std::time::Instant;

use anyhow::ensure;
use redis::Pipeline;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tower_throttle::{Limiter, Quota};

use crate::usage::Usage;
use tower_throttle_benches::support::{Cell, Output, Progress, RedisServer, Table, median};

pub(crate) const KEYS: [u32; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
const CALLERS: u32 = 64;
/// Number of permits in a block, and number of blocks per level.
const BLOCK: u64 = 16_000;
const BLOCKS: u64 = 9;
/// Number of keys that one pipeline creates.
const BATCH: u32 = 2_000;
/// The key to copy. Callers do not use it, because that would make its log grow.
const TEMPLATE: u32 = 80_000_000;
/// A million keys cost more than a hundred only because of CPU caches.
const MOST_RATIO: f64 = 2.0;

/// Microseconds per permit.
struct Level {
    time: f64,
    script: f64,
    calls: f64,
}

pub(crate) async fn measure(output: &mut Output, progress: &mut Progress) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let mut connection = server.connect().await?;
    let limiter = Limiter::builder()
        .store(server.store().await?)
        // No request has to wait, and no key expires during the measurement.
        .quota(Quota::per_hour(1_000_000))
        .build()?;
    let mut table = Table::new(
        "keys picked at random by 64 callers",
        &[
            "keys",
            "us per permit",
            "us in scripts per permit",
            "redis calls per permit",
        ],
    );
    limiter.acquire(name(TEMPLATE)).await?;
    let (mut there, mut levels) = (0, Vec::new());
    for keys in KEYS {
        progress.begin(&format!("keys, {keys}"));
        copy(&mut connection, there..keys).await?;
        there = keys;
        let mut blocks = Vec::new();
        for _ in 0..output.options().count(BLOCKS) {
            blocks.push(block(&limiter, &mut connection, keys).await?);
        }
        let over = |figure: fn(&Level) -> f64| median(blocks.iter().map(figure).collect());
        let level = Level {
            time: over(|block| block.time),
            script: over(|block| block.script),
            calls: over(|block| block.calls),
        };
        table.row([
            Cell::Count(keys.into()),
            Cell::Ratio(level.time),
            Cell::Ratio(level.script),
            Cell::Ratio(level.calls),
        ]);
        levels.push(level);
    }
    output.table(&table);
    let growth = levels[KEYS.len() - 1].time / levels[2].time;
    let claim = "keys, time per permit with a million relative to a hundred";
    output.at_most(claim, growth, MOST_RATIO);
    Ok(())
}

async fn block(
    limiter: &Limiter,
    connection: &mut MultiplexedConnection,
    keys: u32,
) -> anyhow::Result<Level> {
    let before = Usage::read(connection).await?;
    let since = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let limiter = limiter.clone();
        callers.spawn(async move {
            for _ in 0..BLOCK / u64::from(CALLERS) {
                limiter.acquire(name(rand::random_range(0..keys))).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    let time = since.elapsed();
    let usage = Usage::read(connection).await?.since(&before);
    let per_permit = |figure: u64| figure as f64 / BLOCK as f64;
    Ok(Level {
        time: time.as_secs_f64() * 1e6 / BLOCK as f64,
        script: per_permit(usage.micros(&["evalsha"])),
        calls: per_permit(usage.calls(&["evalsha"])),
    })
}

/// All names have the same length, and the digits occur only once in the name of a Redis key.
fn name(key: u32) -> String {
    format!("user:{:08}", 12_000_000 + key)
}

/// Creates these keys as copies of a key with one request.
async fn copy(
    connection: &mut MultiplexedConnection,
    keys: std::ops::Range<u32>,
) -> anyhow::Result<()> {
    let names: Vec<String> = redis::cmd("KEYS")
        .arg(format!("*{}*", name(TEMPLATE)))
        .query_async(connection)
        .await?;
    ensure!(!names.is_empty(), "a key without state");
    let keys: Vec<u32> = keys.collect();
    for batch in keys.chunks(BATCH as usize) {
        let mut copies = Pipeline::new();
        for (from, key) in names
            .iter()
            .flat_map(|from| batch.iter().map(move |key| (from, key)))
        {
            let to = from.replace(&name(TEMPLATE), &name(*key));
            copies.cmd("COPY").arg(from).arg(to).ignore();
        }
        copies.exec_async(connection).await?;
    }
    Ok(())
}
