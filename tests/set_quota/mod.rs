//! Quotas that change at runtime: recorded departures count, and requests that wait depart under the new quotas.

mod change;
mod policy;
mod waiting;

use std::pin::Pin;
use std::time::Duration;

use futures_util::poll;
use support::spend::{attempt, build};
use tower_throttle::{Acquire, Limiter, Permit, Quota, Snapshot};

use crate::limiter::{GUARD, per_second};

const SECOND: Duration = Duration::from_secs(1);

/// The time between two departures with a limit of 1.
const STEP: Duration = Duration::from_millis(1_010);

/// Longer than a test waits on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn set(limiter: &Limiter, quota: Quota) {
    limiter.set_quota(quota).expect("a valid quota");
}

/// A request that waits.
async fn waiter(limiter: &Limiter) -> Pin<Box<Acquire>> {
    let mut waiter = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut waiter).is_pending());
    waiter
}

async fn granted(limiter: &Limiter) -> Permit {
    attempt(limiter, "a", 1).await.expect("a permit")
}

async fn limited(limiter: &Limiter) -> Snapshot {
    attempt(limiter, "a", 1).await.expect_err("it is limited")
}
