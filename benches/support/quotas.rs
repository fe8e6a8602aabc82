//! What is measured: the [`algorithms`], and a [`policy`] of each.

use std::time::Duration;

use tower_throttle::{Algorithm, Limiter, Policy, Quota, WindowStart};

/// Every algorithm for quotas of `limit`; a new one is a line here.
pub fn algorithms(limit: u32) -> Vec<(&'static str, Algorithm)> {
    vec![
        ("sliding log", Algorithm::SlidingLog),
        ("sliding buckets", Algorithm::SlidingBuckets { buckets: 10 }),
        ("spacing", Algorithm::Spacing),
        (
            "leaky bucket",
            Algorithm::LeakyBucket {
                // More than ever wait.
                capacity: 10_000,
            },
        ),
        ("gcra", Algorithm::Gcra { burst: limit }),
        (
            "fixed window",
            Algorithm::FixedWindow {
                start: WindowStart::Clock,
            },
        ),
    ]
}

/// The policy of one quota, with the default guard unless another is given.
pub fn policy(quota: Quota, guard: Option<Duration>) -> anyhow::Result<Policy> {
    let mut limiter = Limiter::builder().quota(quota);
    if let Some(guard) = guard {
        limiter = limiter.guard(guard);
    }
    Ok(Policy::clone(&limiter.build()?.policy()))
}
