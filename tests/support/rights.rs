//! Everything that a store ever does, for users with few rights.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_throttle::Recovery;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, LimiterBuilder};

use crate::redis_server::RedisServer;
use crate::spend::under;

const LONG: Duration = Duration::from_secs(20);

/// Policies with short logs and long ones, which are stored in different ways, and one of each other kind.
fn policies() -> Vec<LimiterBuilder> {
    let all = [
        "50/h",
        "16/h",
        "3/h sliding-buckets buckets=10",
        "10/h spacing",
        "10/h leaky-bucket capacity=1000",
        "10/h gcra burst=5",
        "10/h fixed-window start=first-request",
    ];
    vec![
        under(&["3/h"]),
        under(&["100/h"]),
        under(&["2000/h"]),
        under(&all),
        under(&["1000/h gcra burst=500"]),
    ]
}

/// Calls everything. Panics if the server refuses a command, which `server` knows.
pub async fn do_everything(store: &RedisStore, server: &RedisServer) {
    server.command::<()>(&["ACL", "LOG", "RESET"]);
    for recovery in [Recovery::Immediate, Recovery::Strict] {
        for (number, builder) in policies().into_iter().enumerate() {
            let built = builder.recovery(recovery).store(store.clone()).build();
            let limiter = built.expect("a valid policy");
            for key in [format!("key {number}"), "of all kinds".to_owned()] {
                use_key(&limiter, &key).await;
            }
        }
    }
    // Nothing is left of a key whose only departure is given back.
    let limiter = under(&["3/h"]).store(store.clone()).build();
    let limiter = limiter.expect("a valid policy");
    let decision = limiter.try_acquire("returned").await;
    let decision = decision.expect("the right to it");
    decision.permit().expect("a permit").forfeit();
    let begun = Instant::now();
    while limiter.queues() > 0 {
        assert!(begun.elapsed() < LONG, "the departure is given back");
        sleep(Duration::from_millis(10)).await;
    }
    // A call without an answer is followed by a `PING`.
    let limiter = under(&["3/h"]).store(store.clone().timeout(Duration::from_millis(100)));
    let limiter = limiter.build().expect("a valid policy");
    server.sigstop();
    limiter
        .try_acquire("late")
        .await
        .expect_err("no answer in time");
    server.sigcont();
    let begun = Instant::now();
    while limiter.try_acquire("late").await.is_err() {
        assert!(begun.elapsed() < LONG, "the server answers");
        sleep(Duration::from_millis(10)).await;
    }
    assert_nothing_refused(server);
}

async fn use_key(limiter: &Limiter, key: &str) {
    for _ in 0..2 {
        let decision = limiter.try_acquire(key).await.expect("the right to it");
        if let Some(permit) = decision.permit() {
            permit.forfeit();
        }
        if let Err(error) = limiter
            .acquire(key)
            .max_wait(Duration::from_millis(1))
            .await
        {
            assert!(error.is_limited(), "{error:?}");
        }
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
    let log =
        server.command::<Vec<std::collections::HashMap<String, redis::Value>>>(&["ACL", "LOG"]);
    let refused = log.iter().filter_map(|entry| match entry.get("object") {
        Some(redis::Value::BulkString(object)) => {
            Some(String::from_utf8_lossy(object).into_owned())
        }
        _ => None,
    });
    let refused: Vec<_> = refused
        .filter(|object| {
            !["client", "client|setinfo", "client|setname", "info"].contains(&object.as_str())
        })
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}
