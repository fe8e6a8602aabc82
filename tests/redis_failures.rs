//! A Redis server that is not there, does not answer, or refuses: an error within the store's
//! timeout, never a hang and never a silent pass.

mod support;

use std::error::Error as StdError;
use std::future::Future;
use std::net::TcpListener;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use support::errors::{PATIENCE, assert_readable, bounded, everything, store_error};
use support::redis_server::RedisServer;
use support::slots::slots;
use tokio::time::{Instant, sleep};
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Release, Store, StoreError};
use tower_throttle::{Decision, Error, Limiter, LimiterBuilder, Quota};

/// How long the stores here wait for an answer that does not come.
const SHORT: Duration = Duration::from_millis(200);

/// So long that what is done in one test falls into one window.
const LONG: Duration = Duration::from_secs(600);

async fn connect(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url())
        .await
        .expect("a connection")
        .timeout(PATIENCE)
}

fn quota(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::new(limit, LONG))
}

fn limiter(store: &RedisStore, limit: u32) -> Limiter {
    let builder = quota(limit).guard(Duration::from_secs(60));
    builder
        // So long do they wait for a store that is out.
        .max_wait(Duration::from_millis(100))
        .store(store.clone())
        .build()
        .expect("a valid policy")
}

/// Asks until the store answers again.
async fn recovers<T, F: Future<Output = Result<T, Error>>>(mut ask: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match bounded(ask()).await {
            Ok(answer) => return answer,
            Err(error) => {
                store_error(&error);
                assert!(Instant::now() < deadline, "it does not recover: {error:?}");
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Why the store cannot say whether a request departs.
async fn fails(limiter: &Limiter) -> Error {
    let answer = bounded(limiter.acquire("a")).await;
    let error = answer.expect_err("the store does not answer");
    store_error(&error);
    error
}

async fn cannot_connect(url: &str) -> StoreError {
    let answer = bounded(RedisStore::connect(url)).await;
    answer.expect_err("no such server")
}

/// Nobody answers there, and nothing can have been recorded.
async fn cannot_be_reached(url: &str) {
    let error = cannot_connect(url).await;
    assert_eq!(error.to_string(), "redis cannot be reached");
    assert!(
        error.source().is_some() && !error.is_outcome_unknown(),
        "{error:?}"
    );
    assert_readable(&error);
}

async fn granted(limiter: &Limiter, key: &str) -> bool {
    let decision = bounded(limiter.try_acquire(key)).await.expect("a decision");
    matches!(decision, Decision::Granted(_))
}

#[tokio::test]
async fn connecting_where_nobody_listens_fails_at_once() {
    let mut server = RedisServer::start();
    let url = server.url();
    server.kill9();
    cannot_be_reached(&url).await;
}

#[tokio::test]
async fn connecting_to_somebody_who_never_answers_fails_after_a_second() {
    // The system accepts, and nobody ever reads.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}/", silent.local_addr().expect("an address"));
    let start = Instant::now();
    cannot_be_reached(&url).await;
    assert!(
        start.elapsed() >= Duration::from_millis(900),
        "it gave up after {:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn connecting_by_a_url_that_is_none_fails() {
    for url in [
        "",
        "nonsense",
        "http://127.0.0.1/",
        "redis://127.0.0.1:notaport/",
        "redis://",
    ] {
        let error = cannot_connect(url).await;
        assert!(!error.is_outcome_unknown(), "{url}: {error:?}");
        assert_readable(&error);
    }
}

#[tokio::test]
async fn a_server_that_is_killed_is_an_error_and_not_a_pass() {
    let mut server = RedisServer::start();
    let limiter = limiter(&connect(&server).await, 1_000);
    limiter.acquire("a").await.expect("a permit");
    server.kill9();
    for _ in 0..5 {
        let error = fails(&limiter).await;
        assert_readable(&error);
        store_error(
            &bounded(limiter.try_acquire("a"))
                .await
                .expect_err("nobody answers"),
        );
    }
    // By now all know that the connection is gone; what cannot be sent cannot be recorded.
    let error = fails(&limiter).await;
    assert!(!store_error(&error).is_outcome_unknown(), "{error:?}");
    let error = bounded(limiter.run("a", || async { unreachable!("it ran") })).await;
    store_error(&error.map(|never: ()| never).expect_err("nobody listens"));
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    let mut server = RedisServer::start();
    let limiter = limiter(&connect(&server).await, 1_000);
    limiter.acquire("a").await.expect("a permit");
    for _ in 0..3 {
        server.kill9();
        fails(&limiter).await;
        server.restart();
        recovers(|| limiter.acquire("a")).await;
        limiter
            .acquire("b")
            .await
            .expect("once it answers, it goes on to do so");
    }
}

#[tokio::test]
async fn waiters_of_one_call_share_its_error() {
    let server = RedisServer::start();
    let store = connect(&server).await.timeout(SHORT);
    let limiter = limiter(&store, 1_000);
    recovers(|| limiter.acquire("a")).await;
    server.sigstop();
    let answers = bounded(join_all((0..200).map(|_| limiter.acquire("a")))).await;
    server.sigcont();
    let unknown = answers.into_iter().map(|answer| {
        let error = answer.expect_err("nobody answers");
        store_error(&error).is_outcome_unknown()
    });
    // Those of one call know no more than each other, and those of the next were never sent.
    assert!(unknown.filter(|it| *it).count() > 0);
}

/// A call that was sent may be carried out later: it is said, and it is so.
#[tokio::test]
async fn a_server_that_does_not_answer_is_an_error_whose_outcome_is_unknown() {
    let server = RedisServer::start();
    let store = connect(&server).await.timeout(SHORT);
    let limiter = limiter(&store, 100);
    recovers(|| limiter.acquire("a")).await;

    server.sigstop();
    let start = Instant::now();
    let error = fails(&limiter).await;
    assert!(
        start.elapsed() >= SHORT,
        "it gave up after {:?}",
        start.elapsed()
    );
    assert!(store_error(&error).is_outcome_unknown(), "{error:?}");
    assert_eq!(
        store_error(&error).to_string(),
        "redis did not answer in time"
    );
    assert_readable(&error);
    server.sigcont();

    let permit = recovers(|| limiter.acquire("a")).await;
    // One departed, one was lost on its way back, and this one departs.
    assert!(permit.remaining() <= 97, "{permit:?}");
}

#[tokio::test]
async fn the_default_timeout_is_a_second() {
    let server = RedisServer::start();
    let connected = RedisStore::connect(&server.url())
        .await
        .expect("a connection");
    let limiter = limiter(&connected, 3);
    limiter.acquire("a").await.expect("a permit");
    server.sigstop();
    let start = Instant::now();
    let error = fails(&limiter).await;
    assert!(
        start.elapsed() >= Duration::from_millis(900),
        "it gave up after {:?}",
        start.elapsed()
    );
    assert!(store_error(&error).is_outcome_unknown(), "{error:?}");
}

/// The store's timeout is the one that counts, and not one that the connection brings along.
async fn waits_as_long_as_the_timeout_says(server: &RedisServer, store: RedisStore) {
    let limiter = limiter(&store.timeout(PATIENCE), 3);
    limiter.acquire("a").await.expect("a permit");
    server.sigstop();
    let thaw = async {
        sleep(Duration::from_millis(1_300)).await;
        server.sigcont();
    };
    let (answer, ()) = futures_util::join!(bounded(limiter.acquire("a")), thaw);
    answer.expect("an answer, late as it is");
}

#[tokio::test]
async fn a_long_timeout_outlasts_that_of_a_connected_store() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url())
        .await
        .expect("a connection");
    waits_as_long_as_the_timeout_says(&server, store).await;
}

#[tokio::test]
async fn a_long_timeout_outlasts_that_of_a_multiplexed_connection() {
    let server = RedisServer::start();
    let connection = server.client().get_multiplexed_async_connection().await;
    waits_as_long_as_the_timeout_says(&server, connection.expect("a connection").into()).await;
}

#[tokio::test]
async fn a_broken_multiplexed_connection_fails_at_once_and_for_good() {
    let mut server = RedisServer::start();
    let connection = server.client().get_multiplexed_async_connection().await;
    let limiter = limiter(&connection.expect("a connection").into(), 3);
    limiter.acquire("a").await.expect("a permit");
    server.restart();
    for _ in 0..3 {
        fails(&limiter).await;
    }
}

#[tokio::test]
async fn a_connection_manager_that_never_gives_up_is_bounded_by_the_store() {
    let mut server = RedisServer::start();
    let config = ConnectionManagerConfig::new().set_number_of_retries(1_000);
    let manager = ConnectionManager::new_with_config(server.client(), config).await;
    let store = RedisStore::from(manager.expect("a connection")).timeout(SHORT);
    let limiter = limiter(&store, 1_000);
    recovers(|| limiter.acquire("a")).await;
    server.kill9();
    for _ in 0..3 {
        fails(&limiter).await;
    }
    server.restart();
    recovers(|| limiter.acquire("a")).await;
}

/// Who holds a slot needs no server any more.
#[tokio::test]
async fn a_waiter_with_a_slot_departs_though_the_server_is_gone() {
    let mut server = RedisServer::start();
    let store = connect(&server).await;
    let builder = Limiter::builder().quota(Quota::new(1, Duration::from_millis(100)));
    let builder = builder.guard(Duration::from_secs(2)).store(store);
    let limiter = builder.build().expect("a valid policy");
    limiter.acquire("a").await.expect("a permit");
    let waiter = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("a").await }
    });
    let name = format!("throttle:{{a}}:{}", limiter.policy().id());
    let one = server.command::<u64>(&["STRLEN", &name]);
    let deadline = Instant::now() + PATIENCE;
    while server.command::<u64>(&["STRLEN", &name]) <= one {
        assert!(Instant::now() < deadline, "no slot is reserved");
        sleep(Duration::from_millis(1)).await;
    }
    server.kill9();
    bounded(waiter).await.expect("no panic").expect("a permit");
}

#[tokio::test]
async fn a_user_who_may_not_run_scripts_is_refused_and_charged_nothing() {
    let server = RedisServer::start();
    let rules = [
        "ACL",
        "SETUSER",
        "limited",
        "on",
        ">hunter2",
        "~*",
        "&*",
        "+@all",
        "-@scripting",
    ];
    server.command::<()>(&rules);
    let url = server.url().replace("redis://", "redis://limited:hunter2@");
    let store = bounded(RedisStore::connect(&url))
        .await
        .expect("a connection");
    let limiter = limiter(&store.timeout(PATIENCE), 2);
    for _ in 0..5 {
        let error = fails(&limiter).await;
        assert!(!store_error(&error).is_outcome_unknown(), "{error:?}");
        assert!(
            everything(&error).contains("NoPerm"),
            "{}",
            everything(&error)
        );
        assert_readable(&error);
    }
    server.command::<()>(&["ACL", "SETUSER", "limited", "+@scripting"]);
    assert_eq!(
        [granted(&limiter, "a").await, granted(&limiter, "a").await],
        [true; 2]
    );
    assert!(!granted(&limiter, "a").await);
}

/// By `maxmemory`, and by being a replica that may not write.
#[tokio::test]
async fn a_server_that_takes_no_writes_refuses_and_charges_nothing() {
    let server = RedisServer::start();
    let limiter = limiter(&connect(&server).await, 2);
    let another = limiter.clone();
    another.acquire("b").await.expect("a permit");
    for (on, off) in [
        (
            ["CONFIG", "SET", "maxmemory", "1"],
            ["CONFIG", "SET", "maxmemory", "0"],
        ),
        (
            ["REPLICAOF", "127.0.0.1", "1", ""],
            ["REPLICAOF", "NO", "ONE", ""],
        ),
    ] {
        let words = |words: [&'static str; 4]| words.into_iter().filter(|it| !it.is_empty());
        server.command::<()>(&words(on).collect::<Vec<_>>());
        let error = fails(&limiter).await;
        assert!(
            !store_error(&error).is_outcome_unknown(),
            "{}",
            everything(&error)
        );
        server.command::<()>(&words(off).collect::<Vec<_>>());
    }
    let decision = recovers(|| limiter.try_acquire("a")).await;
    assert!(decision.is_granted());
    assert!(granted(&limiter, "a").await);
    assert!(!granted(&limiter, "a").await);
}

#[tokio::test]
async fn a_release_that_fails_is_an_error_and_consumes_nothing_more() {
    let mut server = RedisServer::start();
    let store = connect(&server).await;
    let policy = quota(2).build().expect("a valid policy").policy();
    let key = Key::from("a");
    let held = slots(&store, &key, &policy, 3).await;
    let last = Release::new(&key, &policy, &held[2..]);
    server.sigstop();
    let error = bounded(store.clone().timeout(SHORT).release(&last)).await;
    assert!(error.expect_err("nobody answers").is_outcome_unknown());
    server.sigcont();
    // It was carried out, or it was not; all that follow have their places.
    let next = slots(&store, &key, &policy, 1).await;
    let window = u64::try_from(LONG.as_micros()).expect("ten minutes");
    assert!(next[0].at >= held[0].at + window && next[0].at < held[0].at + window * 3 / 2);
    server.kill9();
    for _ in 0..3 {
        assert_readable(
            &bounded(store.release(&last))
                .await
                .expect_err("nobody listens"),
        );
    }
}

const SECRET: &str = "hunter2-s3cr3t";

fn assert_secret(error: &(dyn StdError + 'static)) {
    let text = everything(error);
    assert!(
        !text.contains("hunter2") && !text.contains("s3cr3t"),
        "{text}"
    );
}

#[tokio::test]
async fn passwords_never_appear() {
    let mut server = RedisServer::start();
    server.command::<()>(&[
        "ACL",
        "SETUSER",
        "user",
        "on",
        &format!(">{SECRET}"),
        "~*",
        "&*",
        "+@all",
    ]);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addresses = [
        "127.0.0.1:notaport/".to_owned(),
        "127.0.0.1:99999/".to_owned(),
        "/".to_owned(),
        "127.0.0.1/notadatabase".to_owned(),
        "127.0.0.1:1/".to_owned(),
        "no.such.host.invalid/".to_owned(),
        format!("{}/", silent.local_addr().expect("an address")),
        format!("127.0.0.1:{}/99999", server.port()),
    ];
    for address in addresses {
        for scheme in ["redis", "rediss", "unknown"] {
            let url = format!("{scheme}://user:{SECRET}@{address}");
            assert_secret(&cannot_connect(&url).await);
        }
    }
    for wrong in [
        format!("user:{SECRET}-not"),
        format!(":{SECRET}"),
        format!("nobody:{SECRET}"),
    ] {
        let url = format!("redis://{wrong}@127.0.0.1:{}/", server.port());
        assert_secret(&cannot_connect(&url).await);
    }

    let url = format!("redis://user:{SECRET}@127.0.0.1:{}/", server.port());
    let store = bounded(RedisStore::connect(&url))
        .await
        .expect("a connection")
        .timeout(SHORT);
    let limiter = limiter(&store, 100);
    let acquire = limiter.acquire("a");
    let shown = format!(
        "{store:?} {store:#?} {limiter:?} {limiter:#?} {acquire:?} {:?}",
        quota(1).store(store.clone())
    );
    assert!(
        !shown.contains("hunter2") && !shown.contains("s3cr3t"),
        "{shown}"
    );
    drop(acquire);
    recovers(|| limiter.acquire("a")).await;
    server.sigstop();
    assert_secret(&fails(&limiter).await);
    server.sigcont();
    server.kill9();
    for _ in 0..3 {
        assert_secret(&fails(&limiter).await);
    }
    // Without its users, so the password is wrong now.
    server.restart();
    for _ in 0..3 {
        assert_secret(&fails(&limiter).await);
    }
}
