//! The supported versions of Redis, and Valkey.

use tower_throttle::store::RedisStore;

use crate::redis_deployments::promises;
use support::errors::bounded;
use support::redis_server::{RedisServer, redis_6_2, valkey};

async fn serves(server: RedisServer, version: &str) {
    let info = server.command::<String>(&["INFO", "server"]);
    assert!(info.contains(version), "{info}");
    promises::keeps_all(async || {
        let store = bounded(RedisStore::connect(&server.url())).await;
        store.expect("a connection")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_6_2_keeps_all_promises() {
    let server = RedisServer::start_as(redis_6_2(), |_| Vec::new());
    serves(server, "redis_version:6.2.").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_installed_redis_keeps_all_promises() {
    serves(RedisServer::start(), "redis_version:").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valkey_keeps_all_promises() {
    let server = RedisServer::start_as(valkey(), |_| Vec::new());
    serves(server, "server_name:valkey").await;
}
