//! The [`algorithms`] to measure, and a [`limiter`] for each.

use tower_throttle::store::RedisStore;
use tower_throttle::{Algorithm, Limiter, Quota, WindowStart};

/// All algorithms, for a quota of `limit`. Add new algorithms here.
pub fn algorithms(limit: u32) -> Vec<(&'static str, Algorithm)> {
    vec![
        ("sliding log", Algorithm::SlidingLog),
        ("sliding buckets", Algorithm::SlidingBuckets { buckets: 10 }),
        ("spacing", Algorithm::Spacing),
        (
            "leaky bucket",
            Algorithm::LeakyBucket {
                // More than the number of waiting requests.
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

/// A limiter with one quota, on Redis.
pub fn limiter(store: &RedisStore, quota: Quota) -> anyhow::Result<Limiter> {
    let limiter = Limiter::builder().store(store.clone()).quota(quota);
    Ok(limiter.build()?)
}
