//! How long to pause before the next attempt.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// The pause before an attempt, of those that failed before: it doubles with each, up to the longest. It is
/// at random up to that, so that those who got into each other's way do not meet again.
pub(crate) fn before(attempt: u32, first: Duration, longest: Duration) -> Duration {
    up_to(longest_before(attempt, first, longest))
}

/// The same, but half of it at least.
pub(crate) fn half_before(attempt: u32, first: Duration, longest: Duration) -> Duration {
    let half = longest_before(attempt, first, longest) / 2;
    half + up_to(half)
}

fn longest_before(attempt: u32, first: Duration, longest: Duration) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    first.saturating_mul(1 << doublings).min(longest)
}

fn up_to(longest: Duration) -> Duration {
    // Each of these states has its own random seed.
    let random = RandomState::new().hash_one(longest);
    longest.mul_f64(random as f64 / u64::MAX as f64)
}
