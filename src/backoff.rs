//! How long to pause before the next attempt.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// The pause before an attempt, of those that failed before: it doubles with each, up to the longest. Half of it is at
/// random, so that attempts that collided do not meet again.
pub(crate) fn before(attempt: u32, first: Duration, longest: Duration) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    let longest = first.saturating_mul(1 << doublings).min(longest);
    // Each of these states has its own random seed.
    let random = RandomState::new().hash_one(longest);
    (longest / 2).mul_f64(1.0 + random as f64 / u64::MAX as f64)
}
