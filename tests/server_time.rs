//! Servers that do not tell the time: the hosts' clocks take its place.

use std::time::Duration;

use futures_util::future::join_all;
use support::errors::{PATIENCE, bounded, everything, store_error};
use support::load::Load;
use support::redis_server::RedisServer;
use support::spend::build;
use tokio::time::sleep;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota, Recovery};

const LIMIT: u32 = 10;
const WINDOW: Duration = Duration::from_millis(300);

async fn connect(url: &str) -> RedisStore {
    let store = RedisStore::connect(url).await.expect("a connection");
    store.timeout(PATIENCE)
}

fn limiter(store: RedisStore, recovery: Recovery) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    build(builder.store(store).recovery(recovery))
}

#[tokio::test]
async fn without_the_right_to_the_time_calls_fail_at_once() {
    let server = RedisServer::start();
    let store = connect(&server.user(&["+@all", "-time"])).await;
    let limiter = limiter(store, Recovery::Immediate);
    let error = bounded(limiter.acquire("a")).await.expect_err("no time");
    assert!(!store_error(&error).is_outage(), "{error:?}");
    assert!(everything(&error).contains("time"), "{error:?}");
}

#[tokio::test]
async fn the_quota_holds_by_the_hosts_clocks() {
    let server = RedisServer::start();
    let url = server.user(&["+@all", "-time"]);
    let ways = [true, false].map(|scripting| {
        [Recovery::Immediate, Recovery::Strict].map(|recovery| (scripting, recovery))
    });
    let ways = ways.as_flattened().iter();
    join_all(ways.map(async |&(scripting, recovery)| {
        let mut limiters = Vec::new();
        for _ in 0..3 {
            let store = connect(&url).await.server_time(false);
            let store = store.prefix(&format!("{scripting}{recovery:?}"));
            let store = store.expect("a valid prefix").scripting(scripting);
            limiters.push(limiter(store.expect("it was connected"), recovery));
        }
        bounded(limiters[0].acquire("a")).await.expect("a permit");
        let load = Load::of("a", &limiters);
        sleep(WINDOW * 6).await;
        let history = load.history().await;
        history.assert_at_most(LIMIT.into(), WINDOW);
        assert!(history.len() >= LIMIT as usize * 2, "{}", history.len());
    }))
    .await;
}
