//! Checks the departures of several limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use parking_lot::Mutex;
use tower_throttle::key::Key;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::load::load;
use tower_throttle_benches::peers::Rate;
use tower_throttle_benches::support::{Cell, Output, RedisServer, Table};

use crate::{CROWD, LIMIT, RATE};

const LIMITS: [u32; 3] = [LIMIT / 100, LIMIT / 10, LIMIT];

/// Departures of all callers.
#[derive(Clone, Default)]
struct Departures(Arc<Mutex<Vec<Instant>>>);

pub(crate) async fn measure(server: &RedisServer, output: &Output) -> anyhow::Result<()> {
    let mut table = Table::new(
        "departures per second on one hot key, checked",
        &[
            "callers",
            "limit",
            "window us",
            "guard us",
            "departures per s",
            "not used in time",
            "most in any window",
        ],
    );
    for limit in LIMITS {
        let window = RATE.window / (LIMIT / limit);
        table.row(one(server, Rate { limit, window }, output).await?);
    }
    output.table(&table);
    Ok(())
}

async fn one(
    server: &RedisServer,
    Rate { limit, window }: Rate,
    output: &Output,
) -> anyhow::Result<[Cell; 7]> {
    let limiter = Limiter::builder()
        .store(server.store().await?)
        .quota(Quota::new(limit, window))
        .build()?;
    let guard = limiter.policy().guard();
    let key = Key::new(format!("checked:{limit}"));
    let departures = Departures::default();
    let noted = departures.clone();
    let time = output.options().time(Duration::from_secs(1));
    let load = load(CROWD, time, move || {
        let (permit, noted) = (limiter.acquire(key.clone()), noted.clone());
        async move {
            let permit = permit.await?;
            let at = Instant::now();
            // A task that was interrupted for too long must not depart.
            if permit.is_valid() {
                noted.0.lock().push(at);
            }
            Ok(1)
        }
    });
    let load = load.await?;
    let departures = std::mem::take(&mut *departures.0.lock());
    let unused = load.permits - departures.len() as u64;
    let per_second = departures.len() as f64 / load.time.as_secs_f64();
    let first = departures.iter().min().copied();
    let since = |at: &Instant| first.map_or(Duration::ZERO, |first| *at - first);
    let history: History = departures.iter().map(since).collect();
    let most = history.most_in_any(window);
    ensure!(
        most <= u64::from(limit),
        "{most} requests departed within {window:?}, more than {limit}"
    );
    Ok([
        Cell::Count(CROWD as u64),
        Cell::Count(limit.into()),
        Cell::Count(window.as_micros() as u64),
        Cell::Count(guard.as_micros() as u64),
        Cell::Count(per_second as u64),
        Cell::Count(unused),
        Cell::Count(most),
    ])
}
