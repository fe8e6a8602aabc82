//! One server of each version: by TCP, by TLS, by a unix socket, with a database number, and by a user's connection.

use redis::aio::ConnectionManager;
use tower_throttle::store::RedisStore;

use crate::redis_deployments::promises::{self, LONG};
use support::errors::{assert_readable, bounded, everything};
use support::redis_server::{RedisServer, installed};
use support::spend::{spend, under};
use support::tls::TlsServer;

async fn connect(url: &str) -> RedisStore {
    let store = bounded(RedisStore::connect(url)).await;
    store.expect("a connection").timeout(LONG)
}

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
async fn a_connection_of_the_user_serves_scripts_only() {
    let server = RedisServer::start();
    let manager = ConnectionManager::new(server.client()).await;
    let multiplexed = server.client().get_multiplexed_async_connection().await;
    let stores: [RedisStore; 2] = [
        manager.expect("a connection").into(),
        multiplexed.expect("a connection").into(),
    ];
    let stores = stores.map(|it| it.timeout(LONG));
    for store in stores {
        // The value is written under a quota of another kind first.
        spend(&store, under(&["10/s"]), "a", 1).await;
        spend(&store, under(&["10/s gcra burst=3"]), "a", 1).await;
        let error = store.scripting(false).expect_err("no further connections");
        assert!(error.to_string().starts_with("scripting: "), "{error}");
    }
}
