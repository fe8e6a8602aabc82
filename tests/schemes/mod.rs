//! The algorithms on a real Redis: each keeps the bound that is known of it.
//!
//! Redis runs on this host, so the system's clock is the store's.

mod callers;
mod pace;
mod sharing;
mod windows;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use support::redis_server::RedisServer;
use tower_throttle::store::RedisStore;
use tower_throttle::{Algorithm, Limiter, LimiterBuilder, Quota};

/// Longer than a test waits on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// So long that a test ends within one window.
const LONG: Duration = Duration::from_secs(600);

const SECOND: Duration = Duration::from_secs(1);

const MS: fn(u64) -> Duration = Duration::from_millis;

async fn store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.url()).await;
    store.expect("a connection").timeout(PATIENCE)
}

async fn limiter(server: &RedisServer, builder: LimiterBuilder) -> Limiter {
    let builder = builder.store(store(server).await);
    builder.build().expect("a valid policy")
}

fn quota(limit: u32, window: Duration, algorithm: Algorithm) -> LimiterBuilder {
    Limiter::builder().quota(Quota::new(limit, window).algorithm(algorithm))
}

fn since_epoch() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a sensible clock")
}

/// Departs once, and returns a time at which the permit was valid.
async fn depart(limiter: &Limiter, key: &str) -> Duration {
    loop {
        let permit = limiter.acquire(key).await.expect("a permit");
        let at = since_epoch();
        if permit.is_valid() {
            return at;
        }
        permit.forfeit();
    }
}
