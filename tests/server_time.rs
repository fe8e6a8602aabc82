//! Servers that do not tell the time: the hosts' clocks take its place.

use std::time::Duration;

use futures_util::future::join_all;
use support::errors::{PATIENCE, bounded, everything, store_error};
use support::redis_server::RedisServer;
use tokio::time::Instant;
use tower_throttle::Limiter;
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Quota, Recovery};

const LIMIT: u32 = 10;
const WINDOW: Duration = Duration::from_millis(300);

/// A server, and the URL of a user without the right to `TIME`.
fn timeless() -> (RedisServer, String) {
    let server = RedisServer::start();
    let rules = [
        "ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all", "-time",
    ];
    server.command::<()>(&rules);
    let url = server.url().replace("redis://", "redis://limited:pw@");
    (server, url)
}

async fn connect(url: &str) -> RedisStore {
    let store = RedisStore::connect(url).await.expect("a connection");
    store.timeout(PATIENCE)
}

fn limiter(store: RedisStore, recovery: Recovery) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    let builder = builder.store(store).recovery(recovery);
    builder.build().expect("a valid policy")
}

#[tokio::test]
async fn without_the_right_to_the_time_calls_fail_at_once() {
    let (_server, url) = timeless();
    let limiter = limiter(connect(&url).await, Recovery::Immediate);
    let error = bounded(limiter.acquire("a")).await.expect_err("no time");
    assert!(!store_error(&error).is_outage(), "{error:?}");
    let text = everything(&error);
    assert!(text.contains("time"), "{text}");
}

/// Several callers of each limiter, each as often as it can.
async fn departures(limiters: &[Limiter], span: Duration) -> History {
    let start = Instant::now();
    let caller = async |limiter: &Limiter| {
        let mut departed = Vec::new();
        while start.elapsed() < span {
            let permit = bounded(limiter.acquire("a")).await.expect("a permit");
            let at = start.elapsed();
            if permit.is_valid() {
                departed.push((at, 1));
            } else {
                permit.forfeit();
            }
        }
        departed
    };
    let callers = limiters.iter().flat_map(|limiter| [limiter; 4]).map(caller);
    join_all(callers).await.into_iter().flatten().collect()
}

#[tokio::test]
async fn the_quota_holds_by_the_hosts_clocks() {
    let (_server, url) = timeless();
    for scripting in [true, false] {
        for recovery in [Recovery::Immediate, Recovery::Strict] {
            let mut limiters = Vec::new();
            for _ in 0..3 {
                let store = connect(&url)
                    .await
                    .prefix(&format!("{scripting}{recovery:?}"));
                let store = store.expect("a valid prefix").server_time(false);
                let store = store.scripting(scripting).expect("it was connected");
                limiters.push(limiter(store, recovery));
            }
            bounded(limiters[0].acquire("a")).await.expect("a permit");
            let history = departures(&limiters, WINDOW * 6).await;
            history.assert_at_most(LIMIT.into(), WINDOW);
            assert!(history.len() >= LIMIT as usize * 2, "{}", history.len());
        }
    }
}
