//! Every version and kin that is supported, scripts or no scripts.

use tower_throttle::store::RedisStore;
use tower_throttle::test_util::store_contract;

use crate::promises::{self, PATIENCE};
use crate::support::errors::bounded;
use crate::support::redis_server::{RedisServer, redis_6_2, valkey};

async fn connect(server: &RedisServer) -> RedisStore {
    let store = bounded(RedisStore::connect(&server.url())).await;
    store.expect("a connection").timeout(PATIENCE)
}

async fn serves(server: RedisServer, says: &str) {
    let info = server.command::<String>(&["INFO", "server"]);
    assert!(info.contains(says), "{info}");
    promises::keeps_all(async || connect(&server).await).await;
    let store = connect(&server).await;
    let store = store.scripting(false).expect("a way to connect");
    store_contract(async || store.clone()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_6_2_keeps_all_promises() {
    serves(
        RedisServer::start_as(redis_6_2(), |_| Vec::new()),
        "redis_version:6.2.",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_redis_of_the_system_keeps_all_promises() {
    serves(RedisServer::start(), "redis_version:").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valkey_keeps_all_promises() {
    serves(
        RedisServer::start_as(valkey(), |_| Vec::new()),
        "server_name:valkey",
    )
    .await;
}
