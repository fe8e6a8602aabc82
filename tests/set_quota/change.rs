//! Quotas that change under load.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota};

use crate::set_quota::{GUARD, PATIENCE, build, set};
use support::load::{Load, since};
use support::proxy::Proxy;
use support::redis_server::RedisServer;

/// As a rollout does it: 100 per window become 60, one replica after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_replicas_lower_one_after_the_other_holds_under_load() {
    const WINDOW: Duration = Duration::from_secs(1);
    let server = RedisServer::start();
    let mut replicas = Vec::new();
    for _ in 0..3 {
        let builder = Limiter::builder().quota(Quota::new(100, WINDOW));
        let store = server.store().await;
        replicas.push(build(builder.guard(GUARD * 5).store(store)));
    }
    let load = Load::of("a", &replicas);
    sleep(2 * WINDOW).await;
    for replica in &replicas {
        set(replica, Quota::new(60, WINDOW));
        sleep(WINDOW * 2 / 5).await;
    }
    // Departures that were granted under the old quota are over by now.
    let changed = load.elapsed();
    sleep(4 * WINDOW).await;
    let all = load.history().await;
    all.assert_at_most(100, WINDOW);
    assert!(all.most_in_any(WINDOW) > 60, "the old quota was in use");
    let after = since(&all, changed);
    after.assert_at_most(60, WINDOW);
    assert!(after.len() >= 120, "{} departures", after.len());
}

/// Requests of a process far from the server, while others with a log of another shape depart all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_other_shapes_do_not_keep_a_process_from_departing() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    proxy.delay(Duration::from_millis(20));
    let quota = |text: &str| Limiter::builder().quota(text.parse().expect("a quota"));
    let store = RedisStore::connect(&proxy.url()).await;
    let far = build(quota("50/100ms").store(store.expect("a connection")));
    let mut traffic = JoinSet::new();
    for _ in 0..5 {
        let near = build(quota("60/100ms").store(server.store().await));
        traffic.spawn(async move {
            loop {
                near.acquire("a").await.expect("a permit");
                sleep(Duration::from_millis(15)).await;
            }
        });
    }
    sleep(Duration::from_millis(300)).await;
    let requests = join_all((0..50).map(|_| far.acquire("a")));
    let permits = timeout(PATIENCE, requests).await;
    for permit in permits.expect("none waits forever") {
        permit.expect("a permit");
    }
    assert!(!far.health().is_out());
    traffic.shutdown().await;
}
