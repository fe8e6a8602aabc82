//! What others publish where pauses are told.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower_throttle::store::{RedisStore, Store};
use tower_throttle::{Error, Limiter, Permit};

use crate::support::errors::bounded;
use crate::support::redis_server::RedisServer;
use crate::{LONG, connect, quotas};

const CHANNEL: &str = "throttle:pauses";

/// Four times, then the policy and the key.
fn message(times: [u64; 4], policy: &str, key: &str) -> Vec<u8> {
    let times = times.map(u64::to_le_bytes);
    [
        times.as_flattened(),
        policy.as_bytes(),
        b"\0",
        key.as_bytes(),
    ]
    .concat()
}

/// Anything, or what looks like a message, of other keys and policies than the test's.
fn strange() -> impl Strategy<Value = Vec<u8>> {
    let time = prop_oneof![Just(0), Just(u64::MAX), Just(1 << 53), any::<u64>()];
    let named = (
        prop::array::uniform4(time),
        any::<String>(),
        any::<String>(),
    );
    let cut = (named.clone(), 0..60_usize);
    prop_oneof![
        vec(any::<u8>(), 0..100),
        named.prop_map(|(times, policy, key)| message(times, &policy, &key)),
        cut.prop_map(|((times, policy, key), at)| {
            let mut message = message(times, &policy, &key);
            message.truncate(at);
            message
        }),
    ]
}

fn publish(server: &RedisServer, messages: &[Vec<u8>]) {
    let mut connection = server.client().get_connection().expect("a connection");
    for message in messages {
        let mut publish = redis::cmd("PUBLISH");
        let heard: u64 = publish
            .arg(CHANNEL)
            .arg(message)
            .query(&mut connection)
            .expect("an answer");
        assert_eq!(heard, 1);
    }
}

/// Somebody who holds a slot far ahead, so that there is a line to hear what is said.
async fn wait_in_line(limiter: &Limiter) -> JoinHandle<Result<Permit, Error>> {
    for _ in 0..5 {
        let permit = bounded(limiter.acquire("a")).await;
        permit.expect("a permit");
    }
    let waiting = tokio::spawn(limiter.acquire("a"));
    bounded(async {
        while limiter.lines() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    waiting
}

/// A store that hears, a limiter on it, and what its policy is called.
async fn listening(server: &RedisServer) -> (RedisStore, Limiter, String) {
    let store = connect(server).await;
    let limiter = quotas().store(store.clone()).build();
    let limiter = limiter.expect("a valid policy");
    let id = limiter.policy().id().to_owned();
    (store, limiter, id)
}

/// Whether the limiter hears what others say: another one pauses.
async fn assert_hears(limiter: &Limiter, store: &RedisStore, other: &RedisStore) {
    assert!(store.is_listening());
    let other = quotas()
        .store(other.clone())
        .build()
        .expect("a valid policy");
    other
        .pause("b", Instant::now() + LONG)
        .await
        .expect("a pause");
    let decision = limiter.try_acquire("b").await.expect("an answer");
    assert!(!decision.is_granted());
}

#[tokio::test]
async fn what_strangers_publish_pauses_nobody_whom_it_does_not_name() {
    let server = RedisServer::start();
    let (store, limiter, id) = listening(&server).await;
    let mut runner = TestRunner::deterministic();
    let mut messages: Vec<_> = (0..500)
        .map(|_| strange().new_tree(&mut runner).expect("a value").current())
        .collect();
    // Almost the right names.
    for (policy, key) in [
        (&*id, "A"),
        (&id, ""),
        (&id, "a\0"),
        (&id, " a"),
        ("5/10m", "a"),
        ("", "a"),
    ] {
        messages.push(message([1, u64::MAX, u64::MAX, u64::MAX], policy, key));
    }
    let waiting = wait_in_line(&limiter).await;
    publish(&server, &messages);
    let other = connect(&server).await;
    assert_hears(&limiter, &store, &other).await;
    assert!(!waiting.is_finished(), "it waits for its own slot");
    waiting.abort();
    let snapshot = limiter.peek("a").await.expect("an answer");
    assert!(snapshot.delay() <= LONG + LONG, "{snapshot:?}");
}

/// Whoever may publish may pause. But no times that make no sense do harm beyond that, or for good.
#[tokio::test]
async fn times_that_make_no_sense_cause_no_panic_and_are_over_with_the_pause() {
    let server = RedisServer::start();
    let (store, limiter, id) = listening(&server).await;
    let numbers = [
        0,
        1,
        1_763_000_000_000_000,
        (1 << 53) - 1,
        1 << 53,
        u64::MAX / 2,
        u64::MAX,
    ];
    let waiting = wait_in_line(&limiter).await;
    for now in numbers {
        for since in numbers {
            for until in numbers {
                let all = numbers.map(|paused| message([now, since, until, paused], &id, "a"));
                publish(&server, &all);
                let try_acquire = limiter.try_acquire("a");
                // Refused or granted, and no error.
                bounded(try_acquire).await.expect("an answer");
                limiter.resume("a").await.expect("an answer");
            }
        }
    }
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    waiting.abort();
    limiter.reset("a").await.expect("an answer");
    bounded(limiter.acquire("a")).await.expect("a permit");
    let other = connect(&server).await;
    assert_hears(&limiter, &store, &other).await;
}
