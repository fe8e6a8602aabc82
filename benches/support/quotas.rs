//! What is measured: the [`algorithms`], and a [`limiter`] of each.

use tower_throttle::store::RedisStore;
use tower_throttle::{Algorithm, Limiter, Quota, WindowStart};

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

/// A limiter of one quota on Redis.
pub fn limiter(store: &RedisStore, quota: Quota) -> anyhow::Result<Limiter> {
    let limiter = Limiter::builder().store(store.clone()).quota(quota);
    Ok(limiter.build()?)
}
