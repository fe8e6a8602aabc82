//! A process that is cut off from the server while that loses its state.

use std::time::Duration;

use tokio::time::sleep;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota, Recovery};

use super::load::Load;
use support::proxy::Proxy;
use support::redis_server::RedisServer;

const LIMIT: u32 = 2;
const WINDOW: Duration = Duration::from_secs(1);

async fn limiter(url: &str) -> Limiter {
    let store = RedisStore::connect(url).await.expect("a connection");
    let builder = Limiter::builder().store(store.timeout(Duration::from_secs(60)));
    let builder = builder.recovery(Recovery::Strict);
    let limiter = builder.quota(Quota::new(LIMIT, WINDOW)).build();
    limiter.expect("a valid policy")
}

/// It departs by what it was granted, at most a horizon later.
#[tokio::test]
async fn a_process_that_is_cut_off_departs_no_more_than_it_was_granted() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let mut load = Load::new();
    load.add(&limiter(&proxy.url()).await);
    load.add(&limiter(&proxy.url()).await);
    load.goes_on(LIMIT as usize).await;
    proxy.swallow();
    server.command::<()>(&["FLUSHALL"]);
    // It has seen nothing, but the server knows that it was emptied.
    load.add(&limiter(&server.url()).await);
    sleep(Duration::from_secs(5)).await;
    load.history().await.assert_at_most(LIMIT.into(), WINDOW);
}
