//! Checks that no window holds more departures than the limit: [`Departures`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use parking_lot::Mutex;
use tower_throttle::Permit;
use tower_throttle::test_util::history::History;

/// The times and costs of all departures of one key.
#[derive(Clone, Default)]
pub struct Departures(Arc<Mutex<Vec<(Instant, u64)>>>);

impl Departures {
    /// Records a departure at this moment, unless the permit has expired: then the request must not depart.
    pub fn record(&self, permit: &Permit) {
        self.record_cost(permit, 1);
    }

    pub fn record_cost(&self, permit: &Permit, cost: u32) {
        let at = Instant::now();
        if permit.is_valid() {
            self.0.lock().push((at, cost.into()));
        }
    }

    /// Fails if a window holds more than the limit.
    pub fn check(&self, limit: u32, window: Duration) -> anyhow::Result<()> {
        let departures = self.0.lock();
        let Some(first) = departures.iter().map(|(at, _)| *at).min() else {
            return Ok(());
        };
        let departures = departures.iter().map(|(at, cost)| (*at - first, *cost));
        let most = departures.collect::<History>().most_in_any(window);
        ensure!(
            most <= u64::from(limit),
            "{most} requests departed within {window:?}, more than {limit}"
        );
        Ok(())
    }
}
