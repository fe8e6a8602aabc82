//! Every store of `tower-throttle` keeps the contract for stores. `redis_deployments` of the package of tests has it for other
//! ways to connect.

use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::ConnectionManager;
use support::redis_server::{RedisServer, installed, redis_6_2, valkey};
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::{MemoryStore, RedisStore};
use tower_throttle::test_util::{FailingStore, ManualClock};
use tower_throttle_store_contract::{StoreHooks, store_contract, store_contract_with};

/// No call takes so long, also on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The values in a server, which its stores keep under the usual prefix.
struct Values(Mutex<redis::Connection>);

impl Values {
    fn of(server: &RedisServer) -> Self {
        let connection = server.client().get_connection();
        Self(Mutex::new(connection.expect("a connection")))
    }

    fn run<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        let mut connection = self.0.lock().expect("no panic");
        command.query(&mut *connection).expect("an answer")
    }
}

/// The name of the value of a key that is short, of letters and digits.
fn name(key: &Key, policy: &Policy) -> String {
    assert!(key.as_str().len() <= 64, "{key} is hashed");
    match policy.name() {
        None => format!("throttle:{{{key}}}"),
        Some(name) => format!("throttle:{{{key}}}:{name}"),
    }
}

impl StoreHooks for Values {
    fn read(&self, key: &Key, policy: &Policy) -> Option<Vec<u8>> {
        self.run(redis::cmd("GET").arg(name(key, policy)))
    }

    fn write(&self, key: &Key, policy: &Policy, value: &[u8]) -> bool {
        self.run(redis::cmd("SET").arg(name(key, policy)).arg(value))
    }

    fn nudges(&self) -> bool {
        true
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").finish_non_exhaustive()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_embedded_store_keeps_the_contract_by_the_real_clock() {
    let store = MemoryStore::new();
    store_contract(async || store.clone()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_embedded_store_keeps_the_contract_by_a_manual_clock_that_runs() {
    store_contract(async || MemoryStore::with_clock(ManualClock::running())).await;
}

#[tokio::test(start_paused = true)]
async fn wrapped_stores_keep_the_contract_whatever_their_latency() {
    for latency in [0, 1, 40] {
        let latency = Duration::from_millis(latency);
        store_contract(async || FailingStore::new(MemoryStore::new()).latency(latency)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_keeps_the_contract_in_each_version_and_mode() {
    type Mode = fn(RedisStore) -> RedisStore;
    let cases: [(PathBuf, Mode); 5] = [
        (installed(), |store| store),
        (redis_6_2(), |store| store),
        (valkey(), |store| store),
        (installed(), |store| {
            store.scripting(false).expect("it connects")
        }),
        (installed(), |store| store.server_time(false)),
    ];
    join_all(cases.map(async |(binary, mode)| {
        let server = RedisServer::start_as(binary, |_| Vec::new());
        let make = async || mode(server.store().await);
        store_contract_with(make, Values::of(&server)).await;
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connections_of_the_user_keep_the_contract_by_scripts_only() {
    let server = RedisServer::start();
    let client = server.client();
    let manager = ConnectionManager::new(client.clone()).await;
    let manager = manager.expect("a connection");
    let shared = client.get_multiplexed_async_connection().await;
    let shared = shared.expect("a connection");
    for store in [RedisStore::from(manager), RedisStore::from(shared)] {
        let store = store.prefix("other").expect("a prefix").timeout(TIMEOUT);
        store_contract(async || store.clone()).await;
        let error = store.scripting(false).expect_err("no further connections");
        assert!(error.to_string().starts_with("scripting: "), "{error}");
    }
}
