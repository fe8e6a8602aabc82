//! Several servers: a cluster that loses its state, and a replica that takes over.

use std::time::Duration;

use tokio::time::sleep;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota, Recovery};

use super::load::Load;
use super::{LIMIT, MAX_WAIT, WINDOW};
use support::cluster::Cluster;
use support::sentinel::{NAME, Sentinels};

fn strict(store: RedisStore) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    let builder = builder.store(store.timeout(Duration::from_millis(500)));
    let builder = builder.recovery(Recovery::Strict).max_wait(MAX_WAIT);
    builder.build().expect("a valid policy")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_emptied() {
    let cluster = Cluster::start();
    let mut load = Load::new();
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::connect_cluster(cluster.urls()).await;
        limiters.push(strict(store.expect("a connection")));
        load.add(&limiters[limiters.len() - 1]);
    }
    load.goes_on(LIMIT as usize * 2).await;
    for _ in 0..2 {
        for server in cluster.running() {
            // A replica refuses, and is emptied by its primary.
            let _ = server.try_command::<()>(&["FLUSHALL"]);
        }
        load.goes_on(LIMIT as usize * 3).await;
    }
    // Wherever a key lies.
    for key in cluster.keys_of_each() {
        while limiters[0].acquire(key.as_str()).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    }
    let history = load.history().await;
    history.assert_at_most(LIMIT.into(), WINDOW);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_another_takes_the_place_of() {
    let mut sentinels = Sentinels::start();
    let mut load = Load::new();
    for _ in 0..2 {
        let store = RedisStore::connect_sentinel(sentinels.urls(), NAME).await;
        load.add(&strict(store.expect("a connection")));
    }
    load.goes_on(LIMIT as usize * 2).await;
    let primary = sentinels.primary();
    sentinels.servers[primary].kill9();
    load.goes_on(LIMIT as usize * 4).await;
    let history = load.history().await;
    history.assert_at_most(LIMIT.into(), WINDOW);
}
