//! Where a simulation begins, so that it comes to the same each time.

use std::time::Duration;

use tokio::time::sleep;
use tower_throttle::store::{MemoryStore, Store as _, StoreError};
use tower_throttle::test_util::ManualClock;
use tower_throttle::{Algorithm, Policy, Quota, WindowStart};

/// A store whose clock begins at the same midnight each time: where the windows and the buckets that are aligned to
/// it lie would differ from run to run by the system's.
///
/// It shows a whole millisecond whenever the timer ticks, as who waits wakes with a tick.
pub(super) async fn store_in_step() -> (MemoryStore, ManualClock) {
    // Wakes with a tick.
    sleep(Duration::from_millis(1)).await;
    let clock = ManualClock::running();
    (MemoryStore::with_clock(clock.clone()), clock)
}

/// Sets the clock to the middle of the longest window that is aligned to it: there it shows that as many may depart
/// before the window ends as after.
pub(super) async fn mid_window(
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
