//! Checks that no window holds more departures than a quota allows: [`Departures`]. Fills a log: [`fill`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use parking_lot::Mutex;
use tokio::time::sleep_until;
use tower_throttle::key::Key;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Permit, Quota};

#[derive(Clone, Default)]
pub struct Departures(Arc<Mutex<Vec<(Instant, u64)>>>);

impl Departures {
    /// Records a departure at this moment, unless the permit has expired: then the request must not depart.
    pub fn record(&self, permit: &Permit) {
        let at = Instant::now();
        if permit.is_valid() {
            self.0.lock().push((at, permit.cost().into()));
        }
    }

    /// Fails if the departures break the promise of the quota.
    pub fn check(&self, quota: &Quota) -> anyhow::Result<()> {
        let departures = self.0.lock();
        let Some(first) = departures.iter().map(|(at, _)| *at).min() else {
            return Ok(());
        };
        let departures = departures.iter().map(|(at, cost)| (*at - first, *cost));
        let fault = departures.collect::<History>().fault(quota);
        ensure!(fault.is_none(), "{quota}: {fault:?}");
        Ok(())
    }
}

/// Spends units of a key, at even distances and in so many parts, if there are as many units.
pub async fn fill(
    limiter: &Limiter,
    key: &Key,
    units: u32,
    parts: u32,
    (start, span): (Instant, Duration),
) -> anyhow::Result<Departures> {
    let (departures, mut spent) = (Departures::default(), 0);
    for part in 1..=parts {
        sleep_until((start + span * part / parts).into()).await;
        let cost = units * part / parts - spent;
        if cost > 0 {
            departures.record(&limiter.acquire(key.clone()).cost(cost).await?);
            spent += cost;
        }
    }
    Ok(departures)
}
