//! Everything that a store ever does, for users with few rights.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;
use tower_throttle::store::RedisStore;
use tower_throttle::{Error, Limiter, Recovery};

use crate::errors::eventually;
use crate::redis_server::RedisServer;
use crate::spend::{attempt, build, under};

/// Policies with short logs and long ones, which are stored in different ways, and one of each other kind.
const POLICIES: [&[&str]; 5] = [
    &["3/h"],
    &["100/h"],
    &["2000/h"],
    &[
        "50/h",
        "16/h",
        "3/h sliding-buckets buckets=10",
        "10/h spacing",
        "10/h leaky-bucket capacity=1000",
        "10/h gcra burst=5",
        "10/h fixed-window start=first-request",
    ],
    &["1000/h gcra burst=500"],
];

/// Calls everything. Panics if the server refuses a command, which `server` knows.
pub async fn do_everything(store: &RedisStore, server: &RedisServer) {
    server.command::<()>(&["ACL", "LOG", "RESET"]);
    for recovery in [Recovery::Immediate, Recovery::Strict] {
        for (number, quotas) in POLICIES.into_iter().enumerate() {
            let builder = under(quotas).recovery(recovery);
            let limiter = build(builder.store(store.clone()));
            for key in [format!("key {number}"), "of all kinds".to_owned()] {
                use_key(&limiter, &key).await;
            }
        }
    }
    // Nothing is left of a key whose only departure is given back.
    let limiter = build(under(&["3/h"]).store(store.clone()));
    let permit = attempt(&limiter, "returned", 1).await;
    permit.expect("a permit").forfeit();
    eventually("the departure is given back", async || {
        limiter.queues() == 0
    })
    .await;
    // A call without an answer is followed by a `PING`.
    let store = store.clone().timeout(Duration::from_millis(100));
    let limiter = build(under(&["3/h"]).store(store));
    server.sigstop();
    let late = limiter.try_acquire("late").await;
    late.expect_err("no answer in time");
    server.sigcont();
    let answers = async || limiter.try_acquire("late").await.is_ok();
    eventually("the server answers", answers).await;
    assert_nothing_refused(server);
}

async fn use_key(limiter: &Limiter, key: &str) {
    for _ in 0..2 {
        if let Ok(permit) = attempt(limiter, key, 1).await {
            permit.forfeit();
        }
        let bounded = limiter.acquire(key).max_wait(Duration::from_millis(1));
        let error = bounded.await.err();
        assert!(error.as_ref().is_none_or(Error::is_limited), "{error:?}");
        limiter.peek(key).await.expect("the right to it");
        let until = Instant::now() + Duration::from_millis(10);
        limiter.pause(key, until).await.expect("the right to it");
        limiter.resume(key).await.expect("the right to it");
        limiter.reset(key).await.expect("the right to it");
    }
}

/// The server logs what it refuses, but for what a client sends to set up a connection.
#[track_caller]
pub fn assert_nothing_refused(server: &RedisServer) {
    let log: Vec<HashMap<String, Value>> = server.command(&["ACL", "LOG"]);
    let allowed = ["client", "client|setinfo", "client|setname", "info"];
    let refused = log.iter().filter(|entry| match entry.get("object") {
        Some(Value::BulkString(object)) => allowed.iter().all(|it| it.as_bytes() != object),
        _ => false,
    });
    let refused: Vec<_> = refused.collect();
    assert!(refused.is_empty(), "{refused:?}");
}
