//! A process that does not hear of a loss, as it is cut off.

use std::time::Duration;

use tokio::time::sleep;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota, Recovery};

use super::grown;
use super::load::Load;
use super::support::proxy::Proxy;

const LIMIT: u32 = 2;
const WINDOW: Duration = Duration::from_secs(1);

async fn limiter(url: &str) -> Limiter {
    let store = RedisStore::connect(url).await.expect("a connection");
    let builder = Limiter::builder().store(store.timeout(Duration::from_secs(60)));
    let builder = builder.recovery(Recovery::Strict);
    let limiter = builder.quota(Quota::new(LIMIT, WINDOW)).build();
    limiter.expect("a valid policy")
}

/// It holds slots for longer than the key rests, and does not use them beside those of the others.
#[tokio::test]
async fn whoever_is_cut_off_uses_nothing_for_long() {
    let server = grown();
    let proxy = Proxy::start(server.port());
    let mut load = Load::new();
    // Callers enough for eight seconds.
    load.add(&limiter(&proxy.url()).await);
    load.add(&limiter(&proxy.url()).await);
    load.goes_on(LIMIT as usize).await;
    proxy.swallow();
    server.command::<()>(&["FLUSHALL"]);
    // Who knows of nothing, as those who do are cut off; but the store has just been born.
    load.add(&limiter(&server.url()).await);
    sleep(Duration::from_secs(9)).await;
    load.history().await.assert_at_most(LIMIT.into(), WINDOW);
}
