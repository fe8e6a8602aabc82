//! The effect of each order of layers: each row of the guide's tables.

mod middleware;
mod services;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use support::spend::{build, per_second};
use tokio::time::Instant;
use tower_throttle::Limiter;
use tower_throttle::test_util::history::History;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

const KEY: &str = "api.example.com";

/// How many of so many have been spent.
async fn spent(limiter: &Limiter, limit: u32) -> u32 {
    let snapshot = limiter.peek(KEY).await;
    limit - snapshot.expect("an answer").remaining()
}

/// Notes when requests arrive.
#[derive(Debug, Clone, Default)]
struct Arrivals(Arc<Mutex<Vec<Instant>>>);

impl Arrivals {
    /// How many were before.
    fn note(&self) -> usize {
        let mut arrivals = self.lock();
        arrivals.push(Instant::now());
        arrivals.len() - 1
    }

    fn history(&self) -> History {
        self.lock().iter().copied().collect()
    }

    fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.0.lock().expect("no panic while noting")
    }
}
