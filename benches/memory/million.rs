//! Loads a million users, and waits until they expire.

use std::time::{Duration, Instant};

use tower_throttle::Quota;
use tower_throttle::store::RedisStore;

use crate::gauge::{Gauge, growth};
use crate::users::load;
use tower_throttle_benches::support::{Cell, Output, Progress, Table, limiter};

const USERS: u64 = 1_000_000;
/// Users per batch; a batch has one window.
const BATCH: u64 = 50_000;
/// Users in a first batch that measures the loading rate.
const PILOT: u64 = 20_000;
/// Minimum window, and minimum time between the end of loading and the expiry.
const SHORTEST: Duration = Duration::from_secs(8);
/// Maximum time for Redis to remove expired keys.
const TIMEOUT: Duration = Duration::from_secs(45);
/// Maximum bytes left after the expiry. `used_memory` counts allocated memory, so `MEMORY PURGE` is not needed; tables
/// shrink while keys expire.
const MOST_LEFT: f64 = 1e6;

pub(crate) async fn measure(
    gauge: &mut Gauge,
    store: &RedisStore,
    output: &mut Output,
) -> anyhow::Result<()> {
    let users = output.options().count(USERS);
    // Redis removes expired keys ten times a second, with this effort from 1 to 10.
    let mut effort = redis::cmd("CONFIG");
    effort.arg("SET").arg("active-expire-effort").arg(10);
    gauge.ask::<()>(&effort).await?;
    let pilot = limiter(store, Quota::new(2, SHORTEST))?;
    let start = Instant::now();
    load(&pilot, 0..PILOT).await?;
    // All users expire at about the same time, some time after the end of loading.
    let end = start.elapsed().mul_f64(1.2 * (users / PILOT) as f64) + SHORTEST;
    gauge.clear().await?;
    let before = gauge.settled().await?;

    let start = Instant::now();
    let mut progress = Progress::new((users / BATCH) as usize);
    for batch in 0..users / BATCH {
        progress.begin("million, loading");
        let seconds = end.saturating_sub(start.elapsed()).max(SHORTEST).as_secs();
        let limiter = limiter(store, Quota::new(2, Duration::from_secs(seconds)))?;
        let first = 1_000_000 + batch * BATCH;
        load(&limiter, first..first + BATCH).await?;
    }
    let loading = start.elapsed();
    let (peak, keys) = (gauge.used().await?, gauge.keys().await?);

    let start = Instant::now();
    while gauge.keys().await? > 0 && start.elapsed() < end + TIMEOUT {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let expiring = start.elapsed();
    let left = gauge.keys().await?;
    let start = Instant::now();
    let enough = |used: u64| growth(before, used, 1) <= MOST_LEFT;
    let mut after = gauge.used().await?;
    while !enough(after) && start.elapsed() < TIMEOUT {
        tokio::time::sleep(Duration::from_millis(100)).await;
        after = gauge.used().await?;
    }
    let shrinking = start.elapsed();
    let settled = gauge.settled().await?;

    let mut table = Table::new("a million users that expire", &["name", "figure"]);
    let mut row = |what: &str, figure| table.row([Cell::text(what), figure]);
    let megabytes = |bytes: u64| Cell::Ratio(bytes as f64 / 1e6);
    row("used_memory before, MB", megabytes(before));
    row("at the peak, MB", megabytes(peak));
    row("after all have expired, MB", megabytes(after));
    row("when it is stable, MB", megabytes(settled));
    row("keys at the peak", Cell::Count(keys));
    row("bytes per key", Cell::Figure(growth(before, peak, keys)));
    row("keys left", Cell::Count(left));
    row("seconds to load", Cell::Figure(loading.as_secs_f64()));
    row(
        "seconds until no key is left",
        Cell::Figure(expiring.as_secs_f64()),
    );
    row(
        "seconds until the memory is freed",
        Cell::Figure(shrinking.as_secs_f64()),
    );
    output.table(&table);
    output.at_most("million, keys left".to_owned(), left as f64, 0.0);
    output.at_most(
        "million, bytes left".to_owned(),
        growth(before, after, 1),
        MOST_LEFT,
    );
    output.at_most(
        "million, seconds to load".to_owned(),
        loading.as_secs_f64(),
        60.0,
    );
    Ok(())
}
