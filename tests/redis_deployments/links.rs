//! The connection itself: what breaks it, and that another takes its place without a flood.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Reserve, Reserved, Store as _, StoreError};
use tower_throttle::{Limiter, Policy, Quota};

use crate::promises::PATIENCE;
use crate::support::errors::{assert_readable, bounded};
use crate::support::proxy::Proxy;
use crate::support::redis_server::RedisServer;

const SHORT: Duration = Duration::from_millis(300);

/// So long that all of a test falls into one window.
const LONG: Duration = Duration::from_secs(600);

fn policy() -> std::sync::Arc<Policy> {
    let builder = Limiter::builder().quota(Quota::new(1_000, LONG));
    builder.build().expect("a valid policy").policy()
}

async fn reserve(store: &RedisStore) -> Result<Reserved, StoreError> {
    let (key, policy) = (Key::from("a"), policy());
    bounded(store.reserve(&Reserve::new(&key, &policy))).await
}

async fn through(proxy: &Proxy) -> RedisStore {
    let store = bounded(RedisStore::connect(&proxy.url())).await;
    store.expect("a connection").timeout(SHORT)
}

/// Asks until the store answers; what failed until then.
async fn recovers(store: &RedisStore) -> (Reserved, Vec<StoreError>) {
    let deadline = Instant::now() + PATIENCE;
    let mut errors = Vec::new();
    loop {
        match reserve(store).await {
            Ok(reserved) => return (reserved, errors),
            Err(error) => {
                assert_readable(&error);
                assert!(error.is_outage(), "{error:?}");
                errors.push(error);
            }
        }
        assert!(Instant::now() < deadline, "{errors:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// TCP itself would take a quarter of an hour to notice.
#[tokio::test]
async fn a_connection_that_is_half_open_is_replaced() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let store = through(&proxy).await;
    recovers(&store).await;
    let before = proxy.made();
    // What there is is dead; what is made from now on is not.
    proxy.swallow();
    proxy.heal();
    let error = reserve(&store).await.expect_err("nothing arrives");
    assert!(error.is_outcome_unknown(), "{error:?}");
    // None of those who waited for a sign of life was sent.
    let (_, errors) = recovers(&store).await;
    assert!(
        !errors.iter().any(StoreError::is_outcome_unknown),
        "{errors:?}"
    );
    assert!(proxy.made() > before);
}

/// Slow as it is, the connection is good, and nobody takes it for dead.
#[tokio::test]
async fn a_server_that_is_late_keeps_its_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let store = through(&proxy).await;
    recovers(&store).await;
    let before = proxy.made();
    server.sigstop();
    let error = reserve(&store).await.expect_err("no answer in time");
    assert!(error.is_outcome_unknown(), "{error:?}");
    server.sigcont();
    recovers(&store).await;
    assert_eq!(proxy.made(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_floods_a_server_that_is_gone() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let store = through(&proxy).await;
    recovers(&store).await;
    let before = proxy.made();
    // Nobody listens there.
    proxy.lead_to(1);
    proxy.cut();
    let until = Instant::now() + Duration::from_secs(2);
    let callers = (0..20).map(|_| async {
        let mut failures = 0;
        while Instant::now() < until {
            reserve(&store).await.expect_err("nobody is there");
            failures += 1;
            sleep(Duration::from_millis(1)).await;
        }
        failures
    });
    let failures: usize = join_all(callers).await.into_iter().sum();
    let attempts = proxy.made() - before;
    // Those of the second connection, for pauses, included.
    assert!(attempts <= 40, "{attempts} attempts");
    assert!(
        failures > 20 * attempts,
        "{failures} failures and {attempts} attempts"
    );
    proxy.lead_to(server.port());
    recovers(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_share_an_attempt() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let store = through(&proxy).await.timeout(PATIENCE);
    recovers(&store).await;
    let before = proxy.made();
    proxy.delay(Duration::from_millis(50));
    for _ in 0..5 {
        server.command::<usize>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        // Some learn of it, and some connect.
        join_all((0..100).map(|_| reserve(&store))).await;
        let answers = join_all((0..100).map(|_| reserve(&store))).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }
    // The one for pauses is made anew now and then, as the other may lead to another server.
    let attempts = proxy.made() - before;
    assert!((5..=10).contains(&attempts), "{attempts} attempts");
}

/// What was reserved and never heard of stays reserved, and is not asked for again.
#[tokio::test]
async fn a_call_whose_reply_is_lost_is_made_once() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let store = through(&proxy).await.timeout(PATIENCE);
    let (first, _) = recovers(&store).await;
    proxy.cut_reply(b"EVALSHA", 3);
    let error = reserve(&store).await.expect_err("half of an answer");
    assert!(error.is_outcome_unknown() && error.is_outage(), "{error:?}");
    assert_eq!(proxy.cut_replies(), 1);
    let (second, errors) = recovers(&store).await;
    let unknown = errors.iter().filter(|it| it.is_outcome_unknown()).count();
    let consumed = first.remaining() - second.remaining();
    let consumed = usize::try_from(consumed).expect("a few");
    assert!(
        (2..=2 + unknown).contains(&consumed),
        "{consumed} with {unknown}"
    );
}

/// By a name that leads elsewhere now, while the old server still answers.
#[tokio::test]
async fn a_primary_that_became_a_replica_is_left_for_where_its_name_leads() {
    let old = RedisServer::start();
    let new = RedisServer::start();
    let proxy = Proxy::start(old.port());
    for scripting in [true, false] {
        old.command::<()>(&["REPLICAOF", "NO", "ONE"]);
        proxy.lead_to(old.port());
        let store = through(&proxy).await.timeout(PATIENCE);
        let store = store.scripting(scripting).expect("a way to connect");
        recovers(&store).await;
        old.command::<()>(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
        let error = reserve(&store)
            .await
            .expect_err("a replica takes no writes");
        assert!(
            error.is_outage() && !error.is_outcome_unknown(),
            "{error:?}"
        );
        proxy.lead_to(new.port());
        recovers(&store).await;
        let name = new.command::<String>(&["RANDOMKEY"]);
        assert!(name.starts_with("throttle:{a}"), "{name}");
        new.command::<()>(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn connections_that_are_killed_are_replaced() {
    let server = RedisServer::start();
    for scripting in [true, false] {
        let store = RedisStore::connect(&server.url())
            .await
            .expect("a connection");
        let store = store.timeout(PATIENCE).scripting(scripting);
        let store = store.expect("a way to connect");
        for _ in 0..5 {
            recovers(&store).await;
            server.command::<usize>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            let (_, errors) = recovers(&store).await;
            assert!(errors.len() <= 2, "{errors:?}");
        }
    }
}

#[tokio::test]
async fn a_paused_server_is_waited_for_as_long_as_the_timeout() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url())
        .await
        .expect("a connection");
    let store = store.timeout(SHORT);
    recovers(&store).await;
    server.command::<()>(&["CLIENT", "PAUSE", "1500"]);
    let error = reserve(&store).await.expect_err("no answer in time");
    assert!(error.is_outcome_unknown(), "{error:?}");
    recovers(&store).await;
}

#[tokio::test]
async fn scripts_that_are_flushed_are_loaded_anew() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url())
        .await
        .expect("a connection");
    let store = store.timeout(PATIENCE);
    for _ in 0..5 {
        reserve(&store).await.expect("an answer");
        server.command::<()>(&["SCRIPT", "FLUSH"]);
    }
}

/// 400 ms there and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_far_away_is_reached_and_serves() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    proxy.delay(Duration::from_millis(200));
    let store = through(&proxy).await.timeout(PATIENCE);
    assert!(store.is_listening());
    let limiter = Limiter::builder().quota(Quota::new(5, Duration::from_secs(1)));
    let limiter = limiter.store(store).build().expect("a valid policy");
    for permit in join_all((0..12).map(|_| bounded(limiter.acquire("a")))).await {
        permit.expect("a permit");
    }
}

/// As of a store in a static, that several tests use.
#[test]
fn a_store_outlives_the_runtime_that_made_it() {
    let server = RedisServer::start();
    let runtime = || Runtime::new().expect("a runtime");
    let first = runtime();
    let store = first.block_on(RedisStore::connect(&server.url()));
    let store = store.expect("a connection").timeout(PATIENCE);
    first.block_on(reserve(&store)).expect("an answer");
    drop(first);
    for _ in 0..2 {
        runtime().block_on(recovers(&store));
    }
}
