//! Strict recovery: a real server loses the state of keys, and no window holds more than the quota allows.

mod clocks;
mod quiet;

use std::time::Duration;

use support::redis_server::RedisServer;
use support::spend::build;
use tokio::time::sleep;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota, Recovery};

const LIMIT: u32 = 10;
const WINDOW: Duration = Duration::from_millis(400);

/// The longest wait of a request.
const MAX_WAIT: Duration = Duration::from_millis(800);

/// The time that a key rests: a window and a second.
const REST: Duration = Duration::from_millis(400 + 1_000);

async fn strict(server: &RedisServer) -> Limiter {
    let store = RedisStore::connect(&server.url()).await;
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    let builder = builder.recovery(Recovery::Strict).max_wait(MAX_WAIT);
    build(builder.store(store.expect("a connection")))
}

/// Waits until a key of a new server has rested, and departs once.
async fn rested(limiter: &Limiter) {
    while limiter.acquire("a").await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
}
