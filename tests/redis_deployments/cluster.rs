//! A cluster: keys of all its servers, moving slots, and servers that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tower_throttle::store::{RedisStore, Store as _};
use tower_throttle::test_util::history::History;

use crate::redis_deployments::promises::{self, LIMIT, LONG, WINDOW};
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
    assert!(error.expect_err("nobody is there").is_outage());
}

/// Callers that acquire a key until the load ends, and the times of their permits.
struct Load {
    key: String,
    is_over: Arc<AtomicBool>,
    departures: Arc<Mutex<Vec<Instant>>>,
    tasks: Vec<tokio::task::JoinHandle<usize>>,
}

impl Load {
    fn on(stores: &[RedisStore; 2], key: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let departures: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let callers = stores.iter().flat_map(|store| {
            let limiter = promises::limiter(store);
            [limiter.clone(), limiter]
        });
        let tasks = callers.map(|limiter| {
            let (is_over, departures) = (is_over.clone(), departures.clone());
            let key = key.to_owned();
            tokio::spawn(async move {
                let mut failures = 0;
                while !is_over.load(Ordering::Relaxed) {
                    match bounded(limiter.acquire(&*key)).await {
                        Ok(_) => departures.lock().push(Instant::now()),
                        Err(error) => {
                            assert_readable(&error);
                            failures += 1;
                            sleep(Duration::from_millis(20)).await;
                        }
                    }
                }
                failures
            })
        });
        Self {
            key: key.to_owned(),
            tasks: tasks.collect(),
            is_over,
            departures,
        }
    }

    /// Waits until a request departs after this moment.
    async fn goes_on(&self, after: Instant) {
        let deadline = Instant::now() + 3 * LONG;
        while self.departures.lock().last().is_none_or(|at| *at <= after) {
            assert!(Instant::now() < deadline, "{} stands still", self.key);
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The most that departed within any window, and how many calls failed.
    async fn ends(self) -> (u64, usize) {
        self.is_over.store(true, Ordering::Relaxed);
        let mut failures = 0;
        for task in self.tasks {
            failures += task.await.expect("no panic");
        }
        let departures = self.departures.lock();
        let mut history = History::new();
        departures
            .iter()
            .for_each(|at| history.push(*at - departures[0]));
        (history.most_in_any(WINDOW), failures)
    }
}

/// A server that is down affects only its own keys, and only until its replica takes over.
async fn fails_over(how: impl Fn(&mut RedisServer)) {
    let mut cluster = Cluster::start();
    let stores = [connect(&cluster).await, connect(&cluster).await];
    let stores = stores.map(|it| it.timeout(Duration::from_secs(1)));
    let keys = cluster.keys_of_each();
    let loads = keys.each_ref().map(|key| Load::on(&stores, key));
    for load in &loads {
        load.goes_on(Instant::now()).await;
    }
    let primary = cluster.primary_of(&keys[0]);
    how(&mut cluster.servers[primary]);
    let gone = Instant::now();
    // The keys of other servers do not wait for the replica to take over.
    for load in &loads[1..] {
        load.goes_on(gone).await;
    }
    loads[0].goes_on(gone + Duration::from_secs(1)).await;
    for load in &loads {
        load.goes_on(Instant::now()).await;
    }
    let [of_failed, of_second, of_third] = loads.map(Load::ends);
    for (most, failures) in [of_second.await, of_third.await] {
        assert!(most <= LIMIT.into(), "{most} in a window");
        assert!(failures < 20, "{failures} failures");
    }
    // Departures that had not been replicated may be granted again.
    let (most, _) = of_failed.await;
    assert!(most <= 2 * u64::from(LIMIT), "{most} in a window");
    promises::pauses_reach_all(&stores, &keys[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_is_replaced_by_its_replica() {
    fails_over(RedisServer::kill9).await;
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
