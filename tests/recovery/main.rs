//! What becomes of keys whose state a real server loses, where recovery is strict.

#[path = "../support/mod.rs"]
mod support;

mod clocks;
mod cut_off;
mod deployments;
mod held;
mod load;
mod losses;
mod quiet;
mod traces;

use std::time::Duration;

use support::redis_server::RedisServer;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota, Recovery};

const LIMIT: u32 = 10;
const WINDOW: Duration = Duration::from_millis(400);

/// The longest wait.
const MAX_WAIT: Duration = Duration::from_millis(800);

/// How long a key rests, but for twice the guard.
const REST: Duration = Duration::from_millis(2_000 + 800 + 400);

/// As if it had been in use for long.
fn grown() -> RedisServer {
    let server = RedisServer::start();
    server.command::<()>(&["SET", "throttle:born", "1"]);
    server
}

async fn strict(server: &RedisServer) -> Limiter {
    limiter(server, Recovery::Strict).await
}

async fn limiter(server: &RedisServer, recovery: Recovery) -> Limiter {
    let store = RedisStore::connect(&server.url()).await;
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    let builder = builder.store(store.expect("a connection"));
    let builder = builder.recovery(recovery).max_wait(MAX_WAIT);
    builder.build().expect("a valid policy")
}
