//! What several keys ask of one store at once goes to Redis in few calls: each gets its own answer, and
//! what is wrong with one of them, or with who carries the call, is no matter of the others.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use support::redis_server::RedisServer;
use support::slots::slots;
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Slot};
use tower_throttle::{Decision, Limiter, LimiterBuilder, Quota};

/// So long that what is done in one test falls into one window.
const LONG: Duration = Duration::from_secs(600);

async fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.url()).await;
    // A busy machine answers late; what happens then is another test's matter.
    store
        .expect("a connection")
        .timeout(Duration::from_secs(30))
}

fn quota(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::new(limit, LONG))
}

fn limiter(store: &RedisStore, limit: u32) -> Limiter {
    // However late a busy machine wakes, no permit expires.
    let builder = quota(limit).guard(LONG / 60).store(store.clone());
    builder.build().expect("a valid policy")
}

#[tokio::test]
async fn a_key_that_asks_several_times_in_one_call_gets_no_slot_twice() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    for limit in [1, 3, 10, 16, 17, 100] {
        let policy = quota(limit).build().expect("a valid policy").policy();
        let key = Key::from(format!("key {limit}"));
        let requests = (0..limit * 2).map(|_| slots(&store, &key, &policy, 1));
        let taken = join_all(requests).await.concat();
        let first = taken.iter().map(|slot: &Slot| slot.at).min();
        let end = first.expect("slots") + LONG.as_micros() as u64;
        let departing = taken.iter().filter(|slot| slot.at < end).count();
        assert_eq!(departing, limit as usize, "{taken:?}");
    }
}

#[tokio::test]
async fn limiters_that_share_a_store_share_their_quotas() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    for limit in [1, 3, 16] {
        let limiters: Vec<_> = (0..50).map(|_| limiter(&store, limit)).collect();
        let decisions = limiters.iter().map(|limiter| limiter.try_acquire("a"));
        let decisions = join_all(decisions).await;
        let is_granted = |decision: &_| matches!(decision, Ok(Decision::Granted(_)));
        let granted = decisions.iter().filter(|it| is_granted(it)).count();
        assert_eq!(granted, limit as usize, "{decisions:?}");
    }
}
