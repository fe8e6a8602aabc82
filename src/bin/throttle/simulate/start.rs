//! Where a simulation begins, so that it comes to the same each time.

use std::time::Duration;

use tokio::time::{advance, sleep};
use tower_throttle::key::Key;
use tower_throttle::store::{MemoryStore, Reserve, Store as _, StoreError};
use tower_throttle::{Algorithm, Policy, Quota, WindowStart};

use crate::failure::Failure;

/// A store whose clock shows a whole millisecond whenever the timer ticks.
///
/// It starts with the system's clock, to the microsecond. Who waits wakes with a tick, and where
/// between two ticks a slot lies would differ from run to run.
pub(super) async fn store_in_step() -> Result<MemoryStore, Failure> {
    // Wakes with a tick.
    sleep(Duration::from_millis(1)).await;
    let policy = tower_throttle::Limiter::builder()
        .quota(Quota::per_second(1))
        .build()?
        .policy();
    loop {
        let store = MemoryStore::new();
        if now(&store, &policy).await?.is_multiple_of(1_000) {
            return Ok(store);
        }
    }
}

/// Lets time pass until the store's clock is in the middle of the longest window that is aligned to it: there it
/// shows that as many may depart before the window ends as after.
pub(super) async fn mid_window(store: &MemoryStore, policy: &Policy) -> Result<(), Failure> {
    let is_aligned = |quota: &&Quota| {
        let by_clock = WindowStart::Clock;
        quota.counted_by() == Algorithm::FixedWindow { start: by_clock }
    };
    let aligned = policy.quotas().iter().filter(is_aligned);
    if let Some(window) = aligned.map(Quota::window).max() {
        let window = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
        let into_window = now(store, policy).await? % window;
        let ahead = window - into_window + window / 2;
        advance(Duration::from_micros(ahead)).await;
    }
    Ok(())
}

/// The store's clock, in microseconds.
async fn now(store: &MemoryStore, policy: &Policy) -> Result<u64, StoreError> {
    let key = Key::from("clock");
    Ok(store.peek(&Reserve::new(&key, policy)).await?.now())
}
