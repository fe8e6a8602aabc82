//! The schemes of the field, one test each: what each of them promises, without its known faults,
//! against a real Redis.
//!
//! Redis runs on this host, so the time at which a request departs, by the system's clock, is on the
//! store's clock.

mod callers;
mod pace;
mod sharing;
#[path = "../support/mod.rs"]
mod support;
mod windows;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use support::redis_server::RedisServer;
use tower_throttle::key::Key;
use tower_throttle::store::{Ask, Outcome, RedisStore, Reserve, Reserved, Slot, Store as _};
use tower_throttle::{Algorithm, Limiter, LimiterBuilder, Policy, Quota};

/// What a machine may need that does many other things; nothing here waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// So long that what is done in one test falls into one window.
const LONG: Duration = Duration::from_secs(600);

const SECOND: Duration = Duration::from_secs(1);

const MS: fn(u64) -> Duration = Duration::from_millis;

async fn store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.url()).await;
    store.expect("a connection").timeout(PATIENCE)
}

async fn limiter(server: &RedisServer, builder: LimiterBuilder) -> Limiter {
    let builder = builder.store(store(server).await);
    builder.build().expect("a valid policy")
}

fn quota(limit: u32, window: Duration, algorithm: Algorithm) -> LimiterBuilder {
    Limiter::builder().quota(Quota::new(limit, window).algorithm(algorithm))
}

fn policy(builder: LimiterBuilder) -> Arc<Policy> {
    builder.build().expect("a valid policy").policy()
}

fn since_epoch() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a sensible clock")
}

/// Departs once, and says when: at a moment at which the permit was valid.
async fn depart(limiter: &Limiter, key: &str) -> Duration {
    loop {
        let permit = limiter.acquire(key).await.expect("a permit");
        let at = since_epoch();
        if permit.is_valid() {
            return at;
        }
        permit.forfeit();
    }
}

async fn reserve(store: &RedisStore, key: &Key, policy: &Policy, asks: &[Ask]) -> Reserved {
    let mut reserve = Reserve::new(key, policy);
    reserve.asks = asks;
    store.reserve(&reserve).await.expect("an answer")
}

fn ask(count: u32, max_wait: u64) -> Ask {
    Ask {
        count,
        cost: 1,
        max_wait,
    }
}

fn granted(answer: &Reserved) -> Vec<Slot> {
    let outcomes = answer.outcomes().iter();
    let slot = |outcome: &Outcome| match outcome {
        Outcome::Granted(slot) => Some(slot.clone()),
        Outcome::Refused { .. } => None,
    };
    outcomes.filter_map(slot).collect()
}

fn waits(answer: &Reserved) -> Vec<u64> {
    let outcomes = answer.outcomes().iter();
    let wait = |outcome: &Outcome| match outcome {
        Outcome::Granted(_) => None,
        Outcome::Refused { wait } => Some(*wait),
    };
    outcomes.filter_map(wait).collect()
}
