//! The effect of each order of layers: each row of the guide's tables.

mod middleware;
mod services;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, LimiterBuilder, Quota};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

const KEY: &str = "api.example.com";

fn per_second(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_second(limit))
}

fn build(builder: LimiterBuilder) -> Limiter {
    builder.build().expect("a valid policy")
}

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
