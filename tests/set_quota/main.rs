//! Quotas that change while requests wait: those made before the change keep theirs, those made
//! after it have the new ones, and neither spends what is the other's.

mod change;
mod labelled;
mod policy;
mod state;
#[path = "../support/mod.rs"]
mod support;
mod waiting;

use std::pin::Pin;
use std::time::Duration;

use futures_util::poll;
use support::redis_server::RedisServer;
use tokio::time::{sleep, timeout};
use tower_throttle::store::RedisStore;
use tower_throttle::{Acquire, Decision, Limited, Limiter, LimiterBuilder, Permit, Quota};

const SECOND: Duration = Duration::from_secs(1);
const GUARD: Duration = Duration::from_millis(10);

/// How far slots lie apart with a limit of 1.
const STEP: Duration = Duration::from_millis(1_010);

/// What a machine may need that does many other things; nothing here waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// So long that what is done in one test falls into one window.
const LONG: Duration = Duration::from_secs(600);

fn per_second(limit: u32) -> LimiterBuilder {
    Limiter::builder()
        .quota(Quota::per_second(limit))
        .guard(GUARD)
}

fn build(builder: LimiterBuilder) -> Limiter {
    builder.build().expect("a valid policy")
}

fn set(limiter: &Limiter, quota: Quota) {
    limiter.set_quota(quota).expect("a valid quota");
}

/// A request that has its place in the line.
async fn waiter(limiter: &Limiter) -> Pin<Box<Acquire>> {
    let mut waiter = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut waiter).is_pending());
    waiter
}

async fn granted(limiter: &Limiter) -> Permit {
    match limiter.try_acquire("a").await.expect("a decision") {
        Decision::Granted(permit) => permit,
        Decision::Limited(limited) => panic!("{limited:?}"),
    }
}

async fn limited(limiter: &Limiter) -> Limited {
    match limiter.try_acquire("a").await.expect("a decision") {
        Decision::Granted(permit) => panic!("{permit:?}"),
        Decision::Limited(limited) => limited,
    }
}

/// Waits until no line is left, so that nothing more will change.
async fn settle(limiter: &Limiter) {
    let no_line = async {
        while limiter.queues() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, no_line).await.expect("no line is left");
}

async fn redis_store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.url())
        .await
        .expect("a connection");
    store.timeout(PATIENCE)
}
