//! A Redis server that is down, does not answer, or refuses: calls fail within the store's timeout, and no request
//! departs uncounted.

use std::future::Future;
use std::net::TcpListener;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use support::errors::{PATIENCE, assert_readable, bounded, everything, store_error};
use support::redis_server::RedisServer;
use support::spend::under;
use tokio::time::{Instant, sleep};
use tower_throttle::Error;
use tower_throttle::store::{RedisStore, Store as _, StoreError};
use tower_throttle::{Limiter, Outage};

async fn connect(server: &RedisServer) -> RedisStore {
    server.store().await
}

fn limiter(store: &RedisStore, quota: &str) -> Limiter {
    let builder = under(&[quota]).store(store.clone());
    builder.build().expect("a valid policy")
}

/// Calls until the store answers again.
async fn recovers<T, F: Future<Output = Result<T, Error>>>(mut call: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match bounded(call()).await {
            Ok(answer) => return answer,
            Err(error) => {
                store_error(&error);
                assert!(Instant::now() < deadline, "it does not recover: {error:?}");
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// No request of any kind gets a permit.
async fn fails(limiter: &Limiter) -> StoreError {
    let waiting = limiter.acquire("a").max_wait(Duration::from_millis(100));
    let error = bounded(waiting)
        .await
        .expect_err("the store does not answer");
    assert_readable(store_error(&error));
    let ran = limiter.acquire("a").max_wait(Duration::from_millis(100));
    let ran: Result<(), _> = bounded(ran.run(|| async { unreachable!("it ran") })).await;
    store_error(&ran.expect_err("the store does not answer"));
    let error = bounded(limiter.try_acquire("a")).await;
    let error = error.expect_err("the store does not answer");
    store_error(&error).clone()
}

async fn cannot_connect(url: &str) -> StoreError {
    let error = bounded(RedisStore::connect(url)).await;
    let error = error.expect_err("no such server");
    assert!(!error.is_outcome_unknown(), "{error:?}");
    assert_readable(&error);
    error
}

#[tokio::test]
async fn connecting_to_a_server_that_never_answers_fails_after_two_seconds() {
    // The system accepts connections, and no process reads from them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}/", silent.local_addr().expect("an address"));
    let start = Instant::now();
    assert!(cannot_connect(&url).await.is_outage());
    assert!(
        start.elapsed() >= Duration::from_millis(1_900),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn connecting_takes_a_runtime() {
    let mut connecting = Box::pin(RedisStore::connect("redis://127.0.0.1:1/"));
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(outcome) = connecting.as_mut().poll(&mut context) else {
        panic!("it waits");
    };
    let error = outcome.expect_err("no runtime");
    assert!(!error.is_outage(), "{error:?}");
}

/// The store's timeout applies, and not one that the connection has.
#[tokio::test]
async fn the_timeout_bounds_every_call() {
    let server = RedisServer::start();
    let default = RedisStore::connect(&server.url()).await;
    let default = default.expect("a connection");
    let multiplexed = server.client().get_multiplexed_async_connection().await;
    let multiplexed = RedisStore::from(multiplexed.expect("a connection"));
    server.sigstop();
    for store in [&default, &multiplexed] {
        let start = Instant::now();
        let error = bounded(store.ping(&"any".into()))
            .await
            .expect_err("no answer in time");
        assert!(error.is_outage(), "{error:?}");
        assert!(
            start.elapsed() >= Duration::from_millis(900),
            "{:?}",
            start.elapsed()
        );
    }
    let patient = [default, multiplexed].map(|it| it.timeout(PATIENCE));
    let wake = async {
        sleep(Duration::from_millis(1_300)).await;
        server.sigcont();
    };
    let ([one, other], key) = (&patient, "any".into());
    let (one, other, ()) = futures_util::join!(one.ping(&key), other.ping(&key), wake);
    one.expect("a late answer");
    other.expect("a late answer");
}

#[tokio::test]
async fn a_broken_multiplexed_connection_fails_at_once_and_for_good() {
    let mut server = RedisServer::start();
    let connection = server.client().get_multiplexed_async_connection().await;
    let limiter = limiter(&connection.expect("a connection").into(), "3/h");
    limiter.acquire("a").await.expect("a permit");
    server.restart();
    for _ in 0..3 {
        fails(&limiter).await;
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
    let limiter = limiter(&store, "1000/h");
    recovers(|| limiter.acquire("a")).await;
}

#[tokio::test]
async fn a_call_that_the_server_refuses_consumes_nothing() {
    let server = RedisServer::start();
    let user = [
        "ACL", "SETUSER", "limited", "on", ">hunter2", "~*", "&*", "+@all",
    ];
    server.command::<()>(&user);
    let url = server.url().replace("redis://", "redis://limited:hunter2@");
    let store = bounded(RedisStore::connect(&url)).await;
    let limiter = limiter(&store.expect("a connection").timeout(PATIENCE), "2/h");
    for (refuse, allow, is_outage) in [
        (
            &["ACL", "SETUSER", "limited", "-@scripting"][..],
            &["ACL", "SETUSER", "limited", "+@scripting"][..],
            false,
        ),
        (
            &["CONFIG", "SET", "maxmemory", "1"],
            &["CONFIG", "SET", "maxmemory", "0"],
            true,
        ),
        (
            &["REPLICAOF", "127.0.0.1", "1"],
            &["REPLICAOF", "NO", "ONE"],
            true,
        ),
    ] {
        server.command::<()>(refuse);
        let error = fails(&limiter).await;
        assert!(!error.is_outcome_unknown(), "{}", everything(&error));
        assert_eq!(error.is_outage(), is_outage, "{}", everything(&error));
        server.command::<()>(allow);
    }
    let first = recovers(|| limiter.try_acquire("a")).await;
    assert!(first.is_granted());
    for is_granted in [true, false] {
        let decision = limiter.try_acquire("a").await.expect("a decision");
        assert_eq!(decision.is_granted(), is_granted);
    }
}

#[tokio::test]
async fn a_process_starts_while_redis_is_down_and_shares_its_quota_later() {
    let mut server = RedisServer::start();
    let url = server.url();
    server.stop();
    let store = RedisStore::connect_lazy(&url).expect("a URL");
    let limiter = under(&["10/h"])
        .store(store)
        .outage(Outage::Local { share: 0.5 });
    let limiter = limiter.build().expect("a valid policy");
    bounded(limiter.acquire("a"))
        .await
        .expect("a permit of this process");
    server.restart();
    let deadline = Instant::now() + PATIENCE;
    while limiter.health().is_out() {
        assert!(Instant::now() < deadline, "it does not recover");
        sleep(Duration::from_millis(20)).await;
    }
    bounded(limiter.acquire("a")).await.expect("a permit");
    let other = connect(&server).await;
    let other = self::limiter(&other, "10/h");
    assert_eq!(
        bounded(other.peek("a"))
            .await
            .expect("an answer")
            .remaining(),
        9
    );
}
