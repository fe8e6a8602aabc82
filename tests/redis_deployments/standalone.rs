//! One server: by TCP, by TLS, by a unix socket, with a database number and a password.

use redis::Client;
use tower_throttle::store::{RedisStore, Store as _};

use crate::promises::{self, PATIENCE};
use crate::support::errors::{assert_readable, bounded, everything};
use crate::support::redis_server::RedisServer;
use crate::support::tls::TlsServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tls_server_keeps_all_promises() {
    let server = TlsServer::start(&[]);
    promises::keeps_all(async || {
        let store = bounded(RedisStore::connect_with(server.client())).await;
        store.expect("a connection")
    })
    .await;
}

/// Without a certificate of ours, and of an authority that nobody knows.
#[tokio::test]
async fn a_tls_server_of_an_unknown_authority_is_not_trusted() {
    let server = TlsServer::start(&["--tls-auth-clients", "no"]);
    let error = bounded(RedisStore::connect(&server.url())).await;
    let error = error.expect_err("an unknown authority");
    assert_eq!(error.to_string(), "redis cannot be reached");
    assert!(
        everything(&error).contains("UnknownIssuer"),
        "{}",
        everything(&error)
    );
    assert!(!error.is_outcome_unknown());
    assert_readable(&error);
}

#[tokio::test]
async fn a_tls_server_that_asks_for_a_certificate_serves_nobody_without() {
    let server = TlsServer::start(&[]);
    let client = Client::open(server.url()).expect("a valid url");
    let error = bounded(RedisStore::connect_with(client)).await;
    assert_readable(&error.expect_err("no certificate"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_keeps_all_promises() {
    let server = RedisServer::start_as(
        std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into()),
        |dir| {
            let socket = dir.join("redis.sock").display().to_string();
            vec!["--unixsocket".to_owned(), socket]
        },
    );
    let socket = server.dir().join("redis.sock").display().to_string();
    for scheme in ["unix", "redis+unix"] {
        let url = format!("{scheme}://{socket}?db=3");
        let store = bounded(RedisStore::connect(&url)).await;
        let store = store.expect("a connection").timeout(PATIENCE);
        promises::limiter(&store)
            .acquire("a")
            .await
            .expect("a permit");
    }
    assert!(
        server
            .command::<String>(&["INFO", "keyspace"])
            .contains("db3:keys=1,")
    );
    promises::keeps_all(async || {
        let store = bounded(RedisStore::connect(&format!("unix://{socket}"))).await;
        store.expect("a connection")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_number_and_a_password_are_heeded() {
    let server = RedisServer::start();
    server.command::<()>(&["CONFIG", "SET", "requirepass", "secret"]);
    let url = format!("redis://:secret@127.0.0.1:{}/5", server.port());
    let stores = [connect(&url).await, connect(&url).await];
    promises::never_exceeds(&stores, &["a"]).await;
    promises::hears_pauses(&stores).await;
    let client = Client::open(&*url).expect("a valid url");
    let mut connection = client.get_connection().expect("a connection");
    let info: String = redis::cmd("INFO")
        .arg("keyspace")
        .query(&mut connection)
        .expect("an answer");
    assert!(
        info.contains("db5:keys=") && !info.contains("db0:"),
        "{info}"
    );
}

async fn connect(url: &str) -> RedisStore {
    let store = bounded(RedisStore::connect(url)).await;
    store.expect("a connection").timeout(PATIENCE)
}

#[tokio::test]
async fn a_check_tells_whether_the_server_answers() {
    let mut server = RedisServer::start();
    let store = connect(&server.url()).await;
    let key = "a".into();
    bounded(store.check(&key)).await.expect("it answers");
    assert_eq!(store.part(&key), 0);
    server.kill9();
    let error = bounded(store.check(&key)).await.expect_err("it is gone");
    assert!(
        error.is_outage() && !error.is_outcome_unknown(),
        "{error:?}"
    );
    server.restart();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while let Err(error) = bounded(store.check(&key)).await {
        assert!(tokio::time::Instant::now() < deadline, "{error:?}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
