//! Hostile input does no harm, and secrets stay secret.

mod secrets;
mod strangers;
mod texts;
mod urls;

use std::time::Duration;

use tower_throttle::Quota;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, LimiterBuilder};

use support::redis_server::RedisServer;

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Two quotas that hold jointly.
pub(crate) fn quotas() -> LimiterBuilder {
    let quota = |limit| Quota::new(limit, LONG);
    Limiter::builder().quota(quota(5)).quota(quota(7))
}

pub(crate) async fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.url()).await;
    store
        .expect("a connection")
        .timeout(Duration::from_secs(30))
}
