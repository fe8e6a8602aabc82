//! One server of a cluster that is out, with many keys for which somebody waits.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Store as _};
use tower_throttle::test_util::{Operation, RecordingStore};
use tower_throttle::{Limiter, Quota};

use crate::promises::PATIENCE;
use crate::support::cluster::Cluster;
use crate::support::errors::bounded;
use crate::support::redis_server::RedisServer;

/// The replica of this server.
fn replica_of(cluster: &Cluster, primary: usize) -> usize {
    let port = format!("master_port:{}", cluster.servers[primary].port());
    let is_replica = |it: &RedisServer| {
        let info = it.command::<String>(&["INFO", "replication"]);
        info.lines().any(|line| line.trim() == port)
    };
    let found = cluster.servers.iter().position(is_replica);
    found.expect("each primary has one")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_task_asks_a_server_that_is_out_however_many_keys_it_holds() {
    let cluster = Cluster::start();
    let store = bounded(RedisStore::connect_cluster(cluster.urls())).await;
    let store = store.expect("a connection").timeout(Duration::from_secs(1));
    let store = RecordingStore::new(store);
    let limiter = Limiter::builder().quota(Quota::per_second(1));
    let limiter = limiter.max_wait(3 * PATIENCE).store(store.clone()).build();
    let limiter = limiter.expect("a valid policy");
    let [out, other, _] = cluster.keys_of_each();
    let keys = (0..900).map(|key| format!("key {key}"));
    let part = |key: &str| store.part(&Key::from(key));
    let keys: Vec<_> = keys.filter(|key| part(key) == part(&out)).collect();
    assert!(keys.len() > 100, "a third of them: {}", keys.len());
    for permit in join_all(keys.iter().map(|key| bounded(limiter.acquire(&**key)))).await {
        permit.expect("a permit");
    }
    let primary = cluster.primary_of(&out);
    let frozen = [primary, replica_of(&cluster, primary)];
    frozen.iter().for_each(|&it| cluster.servers[it].sigstop());
    let mut waiting = JoinSet::new();
    for key in keys {
        waiting.spawn(limiter.acquire(key));
    }
    sleep(Duration::from_secs(6)).await;
    let operations = store.calls().into_iter().map(|call| call.operation());
    let checks = operations.filter(|it| *it == Operation::Check).count();
    assert!((1..=30).contains(&checks), "{checks} signs of life");
    assert_eq!(limiter.health().parts_out(), 1);
    bounded(limiter.acquire(&*other)).await.expect("a permit");
    frozen.iter().for_each(|&it| cluster.servers[it].sigcont());
    while let Some(permit) = waiting.join_next().await {
        permit.expect("no panic").expect("it is back");
    }
    assert!(!limiter.health().is_out());
}
