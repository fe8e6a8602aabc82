//! A fixed start time for simulations, so that results are reproducible.

use std::time::Duration;

use tokio::time::sleep;
use tower_throttle::store::{MemoryStore, Store as _, StoreError};
use tower_throttle::test_util::ManualClock;
use tower_throttle::{Algorithm, Policy, Quota, WindowStart};

/// A store whose clock starts at a fixed midnight. With the system's clock, aligned windows and buckets would start at
/// other times in each run.
///
/// The clock shows whole milliseconds when tokio's timer ticks, because the timer wakes waiting requests at its ticks.
pub(super) async fn aligned_store() -> (MemoryStore, ManualClock) {
    // Aligns the clock with the timer's ticks.
    sleep(Duration::from_millis(1)).await;
    let clock = ManualClock::running();
    (MemoryStore::with_clock(clock.clone()), clock)
}

/// Advances the clock to the middle of the longest aligned window, so that the results show the full quota before the
/// end of the window and again after it.
pub(super) async fn move_to_mid_window(
    store: &MemoryStore,
    clock: &ManualClock,
    policy: &Policy,
) -> Result<(), StoreError> {
    let is_aligned = |quota: &&Quota| {
        let by_clock = WindowStart::Clock;
        quota.counted_by() == Algorithm::FixedWindow { start: by_clock }
    };
    let aligned = policy.quotas().iter().filter(is_aligned);
    if let Some(window) = aligned.map(Quota::window).max() {
        let window = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
        let now = store.ping(&"clock".into()).await?.now;
        clock.advance(Duration::from_micros(window - now % window + window / 2));
    }
    Ok(())
}
