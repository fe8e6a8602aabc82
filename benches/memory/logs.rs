//! Measures long logs: bytes per logged request.

use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep_until};
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota};

use crate::gauge::{Gauge, growth};
use crate::schemes::{LOG_SCHEMES, LogScheme};
use tower_throttle_benches::support::{Cell, Output, Progress, Table, limiter};

/// The limit, and the number of keys.
const LIMITS: [(u32, u64); 2] = [(1_000, 80), (10_000, 8)];
/// Maximum number of entries of a log.
const ENTRIES: u32 = 1_000;
/// Departures in a longer log are rounded to a thousandth of the window. Here, they are that far apart.
const WINDOW: Duration = Duration::from_secs(12);
const NAME: &str = "sliding window, full";
const MOST_BYTES: f64 = 12.5;

/// Bytes per logged request.
struct Bytes {
    logged: u64,
    usage: f64,
    used: f64,
}

pub(crate) async fn measure(
    gauge: &mut Gauge,
    store: &RedisStore,
    output: &mut Output,
) -> anyhow::Result<()> {
    let mut table = Table::new(
        "bytes per logged request",
        &[
            "log",
            "limit",
            "logged per key",
            "by MEMORY USAGE",
            "by used_memory",
        ],
    );
    let limits = LIMITS.map(|(limit, keys)| (limit, output.options().count(keys)));
    let mut progress = Progress::new(limits.len() * (1 + LOG_SCHEMES.len()));
    for (limit, keys) in limits {
        progress.begin(&format!("logs of {limit}, {NAME}"));
        let bytes = ours(gauge, store, limit, keys).await?;
        table.row(row(NAME, limit, keys, &bytes));
        let claim = |by| format!("{NAME}, bytes per request of {limit} by {by}");
        output.at_most(claim("MEMORY USAGE"), bytes.usage, MOST_BYTES);
        output.at_most(claim("used_memory"), bytes.used, MOST_BYTES);
        for scheme in &LOG_SCHEMES {
            progress.begin(&format!("logs of {limit}, {}", scheme.name));
            let bytes = theirs(gauge, scheme, limit, keys).await?;
            table.row(row(scheme.name, limit, keys, &bytes));
        }
    }
    output.table(&table);
    Ok(())
}

fn row(name: &str, limit: u32, keys: u64, bytes: &Bytes) -> [Cell; 5] {
    [
        Cell::text(name),
        Cell::Count(limit.into()),
        Cell::Count(bytes.logged / keys),
        Cell::Figure(bytes.usage),
        Cell::Figure(bytes.used),
    ]
}

async fn ours(
    gauge: &mut Gauge,
    store: &RedisStore,
    limit: u32,
    keys: u64,
) -> anyhow::Result<Bytes> {
    let limiter = limiter(store, Quota::new(limit, WINDOW))?;
    // Loads the script and allocates buffers before the memory is measured.
    fill(&limiter, limit, "first").await?;
    gauge.clear().await?;
    let before = gauge.settled().await?;
    let names: Vec<_> = (0..keys).map(|key| format!("api:{key}")).collect();
    try_join_all(names.iter().map(|name| fill(&limiter, limit, name))).await?;
    let after = gauge.used().await?;
    let names = gauge.names().await?;
    let usage = gauge.usage(names).await?;
    let logged = u64::from(limit) * keys;
    Ok(Bytes {
        logged,
        usage: usage as f64 / logged as f64,
        used: growth(before, after, logged),
    })
}

/// Spends the limit of a key within its window, with one departure per entry of its log.
async fn fill(limiter: &Limiter, limit: u32, name: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    for entry in 0..ENTRIES {
        // Less than a window, so that no departure has expired at the end.
        sleep_until(start + WINDOW * 9 / 10 * entry / ENTRIES).await;
        limiter.acquire(name).cost(limit / ENTRIES).await?;
    }
    Ok(())
}

async fn theirs(
    gauge: &mut Gauge,
    scheme: &LogScheme,
    limit: u32,
    keys: u64,
) -> anyhow::Result<Bytes> {
    const PART: u64 = 100;
    gauge.clear().await?;
    let before = gauge.settled().await?;
    let names: Vec<_> = (0..keys).map(|key| format!("throttle:api:{key}")).collect();
    for name in &names {
        let parts = (0..u64::from(limit) / PART).map(|part| part * PART..(part + 1) * PART);
        gauge
            .send(parts.map(|part| (scheme.record)(name, part)))
            .await?;
    }
    let logged = u64::from(limit) * keys;
    Ok(Bytes {
        logged,
        used: growth(before, gauge.settled().await?, logged),
        usage: gauge.usage(names).await? as f64 / logged as f64,
    })
}
