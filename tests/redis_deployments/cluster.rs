//! A cluster: keys of all its servers, moving slots, and servers that fail.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Reserve, Store as _};
use tower_throttle::test_util::history::History;
use tower_throttle::test_util::store_contract;

use crate::promises::{self, LIMIT, PATIENCE, WINDOW};
use crate::support::cluster::Cluster;
use crate::support::errors::{assert_readable, bounded, everything};
use crate::support::proxy::Proxy;
use crate::support::redis_server::RedisServer;

async fn connect(cluster: &Cluster) -> RedisStore {
    let store = bounded(RedisStore::connect_cluster(cluster.urls())).await;
    store.expect("a connection").timeout(PATIENCE)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_all_promises() {
    let cluster = Cluster::start();
    promises::keeps_all(async || connect(&cluster).await).await;
    let store = connect(&cluster).await.scripting(false);
    let store = store.expect("a way to connect");
    store_contract(async || store.clone()).await;
    for server in &cluster.servers {
        let info = server.command::<String>(&["INFO", "commandstats"]);
        let is_primary = server
            .command::<String>(&["INFO", "replication"])
            .contains("role:master");
        assert_eq!(info.contains("cmdstat_evalsha:"), is_primary, "{info}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_are_asked_for_at_once_wherever_they_are() {
    let cluster = Cluster::start();
    let store = connect(&cluster).await;
    let limiter = promises::limiter(&store);
    let keys = (0..600).map(|key| format!("key {key}"));
    let keys: Vec<_> = keys.chain(["}{".to_owned()]).collect();
    let parts: HashSet<_> = keys
        .iter()
        .map(|key| store.part(&Key::from(&**key)))
        .collect();
    assert_eq!(parts.len(), 3, "each server is a part");
    for _ in 0..2 {
        let permits = join_all(keys.iter().map(|key| bounded(limiter.acquire(&**key)))).await;
        for permit in permits {
            permit.expect("a permit");
        }
    }
}

#[tokio::test]
async fn one_server_is_enough_to_find_the_others() {
    let cluster = Cluster::start();
    let url = cluster.servers[5].url();
    let gone = "redis://127.0.0.1:1/";
    let store = bounded(RedisStore::connect_cluster([gone, &url])).await;
    let limiter = promises::limiter(&store.expect("a connection").timeout(PATIENCE));
    for key in cluster.keys_of_each() {
        bounded(limiter.acquire(&*key)).await.expect("a permit");
    }
}

#[tokio::test]
async fn what_is_no_cluster_is_said() {
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
        .expect_err("nobody to ask");
    assert_readable(&error);
    let error = bounded(RedisStore::connect_cluster(["unix:///no/host"])).await;
    assert_readable(&error.expect_err("no host"));
    let error = bounded(RedisStore::connect_cluster(["redis://127.0.0.1:1/"])).await;
    assert!(error.expect_err("nobody is there").is_outage());
}

/// Callers that go on asking for a key until they are told to stop, and when they got their permits.
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

    /// Until somebody departs after this moment.
    async fn goes_on(&self, after: Instant) {
        let deadline = Instant::now() + 3 * PATIENCE;
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

/// A server that is out concerns its own keys only, and those only until its replica takes over.
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
    // Whoever asks for the others need not wait for the replica to take over.
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
    // What the replica had not got yet may be handed out once more.
    let (most, _) = of_failed.await;
    assert!(most <= 2 * u64::from(LIMIT), "{most} in a window");
    promises::hears_pauses(&stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_is_replaced_by_its_replica() {
    fails_over(RedisServer::kill9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_replaced_by_its_replica() {
    fails_over(|server| server.sigstop()).await;
}

/// Of a slot that is on its way to another server, none will serve several names; once it is there, that is
/// found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_are_followed() {
    let cluster = Cluster::start();
    for scripting in [true, false] {
        let store = connect(&cluster).await.scripting(scripting);
        let store = store.expect("a way to connect");
        let limiter = promises::limiter(&store);
        let [key, other, _] = cluster.keys_of_each();
        let (from, to) = (cluster.primary_of(&key), cluster.primary_of(&other));
        let [from, to] = [from, to].map(|it| &cluster.servers[it]);
        bounded(limiter.acquire(&*key)).await.expect("a permit");
        let slot = from.command::<u64>(&["CLUSTER", "KEYSLOT", &key]);
        let slot = slot.to_string();
        let parts = |keys: [&str; 2]| keys.map(|key| store.part(&Key::from(key)));
        let [part, another] = parts([&key, &other]);
        let keys = (0..).map(|number| format!("near {number}"));
        let near = |it: &String| parts([it, it])[0] == part;
        let near = keys.into_iter().find(near).expect("a third of them");
        assert_ne!(part, another, "they are on two servers");

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
        let (policy, key) = (limiter.policy(), Key::from(&*key));
        let answer = bounded(store.reserve(&Reserve::new(&key, &policy))).await;
        let error = answer.expect_err("it is neither here nor there");
        assert!(
            error.is_outage() && !error.is_outcome_unknown(),
            "{}",
            everything(&error)
        );

        let parts_now = parts([key.as_str(), &other]);
        assert!(!parts_now.contains(&part), "the slot is a part of its own");
        assert_eq!(parts_now[1], another);
        let refused = bounded(limiter.try_acquire(&key)).await;
        assert!(refused.is_err() && limiter.health().parts_out() == 1);
        let served = bounded(limiter.try_acquire(&*near)).await;
        served.expect("all other slots are served");

        for server in [to, from] {
            server.command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
        let answer = bounded(store.reserve(&Reserve::new(&key, &policy))).await;
        let answer = answer.expect("an answer");
        assert!(
            answer.remaining() <= LIMIT - 2,
            "what was recorded came along"
        );
        bounded(store.reset(&key, &policy))
            .await
            .expect("a fresh start");
        assert_eq!(
            cluster.servers[cluster.primary_of(key.as_str())].port(),
            to.port()
        );
    }
}

/// Neither is one asked more often than it has to be, nor does anybody wait for those that are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_gone_is_not_flooded() {
    let mut cluster = Cluster::start();
    let proxy = Proxy::start(cluster.servers[0].port());
    let store = bounded(RedisStore::connect_cluster([proxy.url()])).await;
    let store = store.expect("a connection").timeout(Duration::from_secs(1));
    let key = Key::from("a");
    bounded(store.check(&key)).await.expect("an answer");
    cluster.servers.iter_mut().for_each(RedisServer::kill9);
    let before = proxy.made();
    let until = Instant::now() + Duration::from_secs(3);
    let mut checks = 0;
    while Instant::now() < until {
        let error = bounded(store.check(&key)).await;
        assert!(error.expect_err("nobody is there").is_outage());
        checks += 1;
        sleep(Duration::from_millis(1)).await;
    }
    let asked = proxy.made() - before;
    assert!(asked <= 20, "{asked} times");
    assert!(
        checks > 5 * asked,
        "{checks} checks, and it was asked {asked} times"
    );
}
