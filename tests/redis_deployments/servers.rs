//! One server by each way to connect, the primary that sentinels name, and a cluster.

use support::redis_server::{connect, installed};
use support::sentinel::{NAME, Sentinels};
use support::tls::TlsServer;
use tower_throttle::Recovery::{Immediate, Strict};
use tower_throttle::store::Store as _;

use crate::prelude::*;
use crate::redis_deployments::promises::{self, LONG};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tls_server_keeps_all_promises() {
    let server = TlsServer::start(&[]);
    promises::keeps_all(async || {
        let store = bounded(RedisStore::connect_with(server.client())).await;
        store.expect("a connection")
    })
    .await;
}

/// The client has no certificate, and does not know the authority.
#[tokio::test]
async fn a_tls_server_of_an_unknown_authority_is_not_trusted() {
    let server = TlsServer::start(&["--tls-auth-clients", "no"]);
    let error = bounded(RedisStore::connect(&server.url())).await;
    let error = error.expect_err("an unknown authority");
    assert_eq!(error.to_string(), "redis cannot be reached");
    let text = everything(&error);
    assert!(text.contains("UnknownIssuer"), "{text}");
    assert!(!error.is_outcome_unknown());
    assert_readable(&error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_keeps_all_promises() {
    let server = RedisServer::start_as(installed(), |dir| {
        let socket = dir.join("redis.sock").display().to_string();
        vec!["--unixsocket".to_owned(), socket]
    });
    let socket = server.dir().join("redis.sock").display().to_string();
    for scheme in ["unix", "redis+unix"] {
        let store = connect(&format!("{scheme}://{socket}?db=3")).await;
        spend(&store, under(&["10/h"]), "a", 1).await;
    }
    let info = server.command::<String>(&["INFO", "keyspace"]);
    assert!(info.contains("db3:keys=1,"), "{info}");
    promises::keeps_all(async || connect(&format!("unix://{socket}")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_sentinels_name_keeps_all_promises() {
    let sentinels = Sentinels::start();
    let connect = async |primary: &str| {
        let store = RedisStore::connect_sentinel(sentinels.urls(), primary);
        bounded(store).await.map(|it| it.timeout(LONG))
    };
    promises::keeps_all(async || connect(NAME).await.expect("a connection")).await;

    // The URL of the primary has the user and the database of the servers.
    for server in &sentinels.servers {
        server.user(&["+@all"]);
    }
    let of = |user: &str| format!("redis://{user}@{NAME}/4");
    let store = connect(&of("user:secret")).await.expect("a connection");
    spend(&store, under(&["10/h"]), "a", 1).await;
    let info = sentinels.servers[0].command::<String>(&["INFO", "keyspace"]);
    assert!(info.contains("db4:keys=1,"), "{info}");
    for wrong in [&*of("user:wrong"), "unknown", "redis://["] {
        let error = connect(wrong).await.expect_err("no such primary");
        assert_readable(&error);
        let text = everything(&error);
        assert!(!text.contains("wrong"), "{text}");
    }
}

/// One server is enough to find the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_all_promises() {
    let cluster = Cluster::start();
    let known = ["redis://127.0.0.1:1/", &cluster.servers[5].url()];
    let connect = async || bounded(RedisStore::connect_cluster(known)).await;
    promises::keeps_all(async || connect().await.expect("a connection")).await;
    for server in &cluster.servers {
        let info = |section| server.command::<String>(&["INFO", section]);
        let is_primary = info("replication").contains("role:master");
        let is_called = info("commandstats").contains("cmdstat_evalsha:");
        assert_eq!(is_called, is_primary);
    }
}

#[tokio::test]
async fn servers_that_are_not_a_cluster_are_refused() {
    let server = RedisServer::start();
    let error = bounded(RedisStore::connect_cluster([server.url()])).await;
    let error = error.expect_err("it is none");
    assert!(!error.is_outage(), "{error:?}");
    let text = everything(&error);
    assert!(text.contains("cluster support disabled"), "{text}");
    assert_readable(&error);
    let error = bounded(RedisStore::connect_cluster(["redis://127.0.0.1:1/"])).await;
    assert!(error.expect_err("no server is there").is_outage());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_are_followed_with_their_state() {
    let cluster = Cluster::start();
    for (scripting, recovery) in [(true, Immediate), (false, Immediate), (true, Strict)] {
        let quota = ["10/100ms", "10/h"][usize::from(recovery == Immediate)];
        let store = cluster.store().await.scripting(scripting);
        let limiter = under(&[quota]).store(store.expect("a store"));
        let limiter = build(limiter.recovery(recovery));
        let [key, other, _] = cluster.keys_of_each();
        let [from, to] = [&key, &other].map(|key| &cluster.servers[cluster.primary_of(key)]);
        let first = join_all([&key, &other].map(|it| limiter.acquire(&**it))).await;
        assert!(first.iter().all(Result::is_ok), "after the quarantine");
        spend_by(&limiter, &key, 3).await;
        let slot = from.command::<u64>(&["CLUSTER", "KEYSLOT", &key]);
        let slot = slot.to_string();
        let [from_id, to_id] = [from, to].map(|it| it.command::<String>(&["CLUSTER", "MYID"]));
        to.command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        from.command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        let names: Vec<String> = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
        assert!(!names.is_empty());
        for name in &names {
            let port = to.port().to_string();
            from.command::<()>(&["MIGRATE", "127.0.0.1", &port, name, "0", "5000"]);
        }
        let before = connections(from);
        let moving = bounded(limiter.try_acquire(&*key)).await;
        let is_followed = scripting && recovery == Immediate;
        assert_eq!(moving.is_ok(), is_followed, "{moving:?}");
        // The other server does not take the slot.
        to.command::<()>(&["CLUSTER", "SETSLOT", &slot, "STABLE"]);
        let stuck = bounded(limiter.try_acquire(&*key)).await;
        stuck.expect_err("no server has the key");
        assert!(!limiter.health().is_out(), "other slots are served");
        spend_by(&limiter, &other, 1).await;
        assert!(connections(from) <= before + 5, "attempts share them");

        for server in [to, from] {
            server.command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
        let decision = until_ok(async || limiter.try_acquire(&*key).await).await;
        let left = decision.permit().map(|it| it.remaining());
        let expected = (recovery == Immediate).then_some(5 - u32::from(scripting));
        assert_eq!(left, expected, "the state came along, in quarantine");
        limiter.reset(&*key).await.expect("a fresh start");
        assert_eq!(cluster.servers[cluster.primary_of(&key)].port(), to.port());
    }
}

/// The connections that a server has accepted.
fn connections(server: &RedisServer) -> u64 {
    let stats: redis::InfoDict = server.command(&["INFO", "stats"]);
    stats.get("total_connections_received").expect("a count")
}

/// And a cluster that is down is not flooded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_affects_its_own_keys_until_its_replica_takes_over() {
    let mut cluster = Cluster::start();
    let [lost, others @ ..] = cluster.keys_of_each();
    let primary = cluster.primary_of(&lost);
    let proxy = Proxy::start(cluster.servers[(primary + 1) % 6].port());
    let store = bounded(RedisStore::connect_cluster([proxy.url()])).await;
    let store = store.expect("a connection").timeout(Duration::from_secs(1));
    let limiter = build(under(&["10/500ms"]).store(store.clone()));
    bounded(limiter.acquire(&*lost)).await.expect("a permit");
    cluster.servers[primary].kill9();
    let gone = bounded(limiter.try_acquire(&*lost)).await;
    gone.expect_err("it is gone");
    for key in &others {
        spend_by(&limiter, key, 1).await;
    }
    let is_back = async || limiter.try_acquire(&*lost).await.is_ok();
    eventually("a replica takes over", is_back).await;

    let running = cluster.servers.iter_mut().filter(|it| it.is_running());
    running.for_each(RedisServer::kill9);
    let (before, until) = (proxy.made(), Instant::now() + Duration::from_secs(3));
    let mut pings = 0;
    while Instant::now() < until {
        let error = bounded(store.ping(&"any".into())).await;
        assert!(error.expect_err("all servers are down").is_outage());
        pings += 1;
        sleep(Duration::from_millis(1)).await;
    }
    let connections = proxy.made() - before;
    let is_flooded = connections > 20 || pings <= 5 * connections;
    assert!(!is_flooded, "{pings} pings, {connections} connections");
}
