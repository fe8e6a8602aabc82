//! A Redis server that is down or does not answer: calls fail within the store's timeout, and no request departs
//! uncounted.

use std::net::TcpListener;
use std::time::Duration;

use futures_util::FutureExt as _;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use support::errors::{PATIENCE, assert_readable, bounded, eventually, everything, store_error};
use support::redis_server::RedisServer;
use support::spend::{build, under};
use tokio::time::{Instant, sleep};
use tower_throttle::store::{RedisStore, Store as _};
use tower_throttle::{Outage, Recovery};

#[tokio::test]
async fn connecting_to_a_server_that_never_answers_fails_after_two_seconds() {
    // The system accepts connections, and no process reads from them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}/", silent.local_addr().expect("an address"));
    let start = Instant::now();
    let error = bounded(RedisStore::connect(&url)).await;
    let error = error.expect_err("no such server");
    assert!(error.is_outage() && !error.is_outcome_unknown());
    assert_readable(&error);
    assert!(start.elapsed() >= Duration::from_millis(1_900));
}

#[test]
fn connecting_takes_a_runtime() {
    let connecting = RedisStore::connect("redis://127.0.0.1:1/").now_or_never();
    let error = connecting.expect("no wait").expect_err("no runtime");
    assert!(!error.is_outage(), "{error:?}");
}

/// The store's timeout applies, and not one that the connection has.
#[tokio::test]
async fn the_timeout_bounds_every_call() {
    let server = RedisServer::start();
    let default = RedisStore::connect(&server.url()).await;
    let multiplexed = server.client().get_multiplexed_async_connection().await;
    let stores = [
        default.expect("a connection"),
        multiplexed.expect("a connection").into(),
    ];
    server.sigstop();
    for store in &stores {
        let start = Instant::now();
        let error = bounded(store.ping(&"any".into())).await;
        assert!(error.expect_err("no answer in time").is_outage());
        assert!(start.elapsed() >= Duration::from_millis(900));
    }
    let [one, other] = stores.map(|it| it.timeout(PATIENCE));
    let wake = async {
        sleep(Duration::from_millis(1_300)).await;
        server.sigcont();
    };
    let key = "any".into();
    let (one, other, ()) = tokio::join!(one.ping(&key), other.ping(&key), wake);
    one.and(other).expect("late answers");
}

#[tokio::test]
async fn without_the_right_to_the_time_calls_fail_unless_the_hosts_clocks_take_its_place() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.user(&["+@all", "-time"])).await;
    let store = store.expect("a connection").timeout(PATIENCE);
    let limiter = build(under(&["10/h"]).store(store.clone()));
    let error = bounded(limiter.acquire("a")).await.expect_err("no time");
    assert!(!store_error(&error).is_outage(), "{error:?}");
    assert!(everything(&error).contains("time"), "{error:?}");
    for scripting in [true, false] {
        for recovery in [Recovery::Immediate, Recovery::Strict] {
            let store = store.clone().scripting(scripting).expect("a store");
            let store = store.server_time(false);
            let builder = under(&["10/200ms"]).recovery(recovery);
            let limiter = build(builder.store(store));
            bounded(limiter.acquire("a")).await.expect("a permit");
        }
    }
}

#[tokio::test]
async fn a_broken_multiplexed_connection_fails_at_once_and_for_good() {
    let mut server = RedisServer::start();
    let connection = server.client().get_multiplexed_async_connection().await;
    let store = RedisStore::from(connection.expect("a connection"));
    let limiter = build(under(&["3/h"]).store(store));
    limiter.acquire("a").await.expect("a permit");
    server.restart();
    for _ in 0..3 {
        // No request of any kind gets a permit.
        let acquire = || limiter.acquire("a").max_wait(Duration::from_millis(100));
        let waits = bounded(acquire()).await.err();
        let ran = bounded(acquire().run(async || unreachable!("it ran"))).await;
        let ran: Result<(), _> = ran;
        let tries = bounded(limiter.try_acquire("a")).await.err();
        for error in [waits, ran.err(), tries] {
            assert_readable(store_error(&error.expect("the store does not answer")));
        }
    }
}

#[tokio::test]
async fn the_timeout_bounds_a_connection_manager_that_never_gives_up() {
    let mut server = RedisServer::start();
    let config = ConnectionManagerConfig::new().set_number_of_retries(1_000);
    let manager = ConnectionManager::new_with_config(server.client(), config).await;
    let store = RedisStore::from(manager.expect("a connection"));
    let store = store.timeout(Duration::from_millis(200));
    server.kill9();
    for _ in 0..3 {
        let error = bounded(store.ping(&"any".into())).await;
        assert!(error.expect_err("no server").is_outage());
    }
    server.restart();
    let limiter = build(under(&["1000/h"]).store(store));
    eventually("it recovers", async || limiter.acquire("a").await.is_ok()).await;
}

#[tokio::test]
async fn a_process_starts_while_redis_is_down_and_shares_its_quota_later() {
    let mut server = RedisServer::start();
    let url = server.url();
    server.stop();
    let store = RedisStore::connect_lazy(&url).expect("a URL");
    let local = Outage::Local { share: 0.5 };
    let limiter = build(under(&["10/h"]).store(store).outage(local));
    let permit = bounded(limiter.acquire("a")).await;
    permit.expect("a permit of this process");
    server.restart();
    eventually("it recovers", async || !limiter.health().is_out()).await;
    bounded(limiter.acquire("a")).await.expect("a permit");
    let other = build(under(&["10/h"]).store(server.store().await));
    let snapshot = bounded(other.peek("a")).await.expect("an answer");
    assert_eq!(snapshot.remaining(), 9);
}
