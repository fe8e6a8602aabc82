//! A cluster: keys of all its servers, moving slots, and servers that fail.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_throttle::store::{RedisStore, Store as _};

use crate::redis_deployments::promises::{self, LONG};
use support::cluster::Cluster;
use support::errors::{assert_readable, bounded, everything};
use support::proxy::Proxy;
use support::redis_server::RedisServer;
use support::spend::{spend_by, under};

async fn connect(cluster: &Cluster) -> RedisStore {
    let store = bounded(RedisStore::connect_cluster(cluster.urls())).await;
    store.expect("a connection").timeout(LONG)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_all_promises() {
    let cluster = Cluster::start();
    promises::keeps_all(async || connect(&cluster).await).await;
    for server in &cluster.servers {
        let info = server.command::<String>(&["INFO", "commandstats"]);
        let is_primary = server
            .command::<String>(&["INFO", "replication"])
            .contains("role:master");
        assert_eq!(info.contains("cmdstat_evalsha:"), is_primary, "{info}");
    }
}

#[tokio::test]
async fn one_server_is_enough_to_find_the_others() {
    let cluster = Cluster::start();
    let url = cluster.servers[5].url();
    let gone = "redis://127.0.0.1:1/";
    let store = bounded(RedisStore::connect_cluster([gone, &url])).await;
    let limiter = promises::limiter(&store.expect("a connection").timeout(LONG));
    for key in cluster.keys_of_each() {
        bounded(limiter.acquire(&*key)).await.expect("a permit");
    }
}

#[tokio::test]
async fn servers_that_are_not_a_cluster_are_refused() {
    let server = RedisServer::start();
    let error = bounded(RedisStore::connect_cluster([server.url()])).await;
    let error = error.expect_err("it is none");
    assert!(!error.is_outage(), "{error:?}");
    assert!(
        everything(&error).contains("cluster support disabled"),
        "{}",
        everything(&error)
    );
    assert_readable(&error);
    let none: [&str; 0] = [];
    let error = RedisStore::connect_cluster(none)
        .await
        .expect_err("no servers");
    assert_readable(&error);
    let error = bounded(RedisStore::connect_cluster(["unix:///no/host"])).await;
    assert_readable(&error.expect_err("no host"));
    let error = bounded(RedisStore::connect_cluster(["redis://127.0.0.1:1/"])).await;
    assert!(error.expect_err("no server is there").is_outage());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_are_followed_with_their_state() {
    let cluster = Cluster::start();
    for scripting in [true, false] {
        let store = connect(&cluster).await.scripting(scripting);
        let store = store.expect("its own connections");
        let limiter = under(&["10/h"]).store(store).build();
        let limiter = limiter.expect("a valid policy");
        let [key, other, _] = cluster.keys_of_each();
        let (from, to) = (cluster.primary_of(&key), cluster.primary_of(&other));
        let [from, to] = [from, to].map(|it| &cluster.servers[it]);
        spend_by(&limiter, &key, 4).await;
        let slot = from.command::<u64>(&["CLUSTER", "KEYSLOT", &key]);
        let slot = slot.to_string();
        let id = |server: &RedisServer| server.command::<String>(&["CLUSTER", "MYID"]);
        let (from_id, to_id) = (id(from), id(to));
        to.command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        from.command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        let names: Vec<String> = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
        assert!(!names.is_empty());
        for name in &names {
            let port = to.port().to_string();
            from.command::<()>(&["MIGRATE", "127.0.0.1", &port, name, "0", "5000"]);
        }
        let moving = bounded(limiter.try_acquire(&*key)).await;
        assert_eq!(moving.is_ok(), scripting, "{moving:?}");
        spend_by(&limiter, &other, 1).await;

        for server in [to, from] {
            server.command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
        let deadline = Instant::now() + LONG;
        let left = loop {
            match bounded(limiter.try_acquire(&*key)).await {
                Ok(decision) => break decision.permit().expect("a permit").remaining(),
                Err(error) => assert!(Instant::now() < deadline, "{error:?}"),
            }
            sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(left, 5 - u32::from(scripting), "the state came along");
        limiter.reset(&*key).await.expect("a fresh start");
        assert_eq!(cluster.servers[cluster.primary_of(&key)].port(), to.port());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_is_not_flooded() {
    let mut cluster = Cluster::start();
    let proxy = Proxy::start(cluster.servers[0].port());
    let store = bounded(RedisStore::connect_cluster([proxy.url()])).await;
    let store = store.expect("a connection").timeout(Duration::from_secs(1));
    bounded(store.ping(&"any".into())).await.expect("an answer");
    cluster.servers.iter_mut().for_each(RedisServer::kill9);
    let before = proxy.made();
    let until = Instant::now() + Duration::from_secs(3);
    let mut pings = 0;
    while Instant::now() < until {
        let error = bounded(store.ping(&"any".into())).await;
        assert!(error.expect_err("all servers are down").is_outage());
        pings += 1;
        sleep(Duration::from_millis(1)).await;
    }
    let connections = proxy.made() - before;
    assert!(connections <= 20, "{connections} connections");
    assert!(
        pings > 5 * connections,
        "{pings} pings, {connections} connections"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_affects_its_own_keys_until_its_replica_takes_over() {
    let mut cluster = Cluster::start();
    let store = connect(&cluster).await.timeout(Duration::from_secs(1));
    let limiter = promises::limiter(&store);
    let [lost, others @ ..] = cluster.keys_of_each();
    bounded(limiter.acquire(&*lost)).await.expect("a permit");
    let primary = cluster.primary_of(&lost);
    cluster.servers[primary].kill9();
    bounded(limiter.try_acquire(&*lost))
        .await
        .expect_err("it is gone");
    for key in &others {
        bounded(limiter.try_acquire(&**key))
            .await
            .expect("a server of its own");
    }
    let deadline = Instant::now() + 3 * LONG;
    while bounded(limiter.try_acquire(&*lost)).await.is_err() {
        assert!(Instant::now() < deadline, "no replica takes over");
        sleep(Duration::from_millis(20)).await;
    }
}
