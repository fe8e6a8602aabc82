//! Each set of quotas has a state of its own, and gets back what it handed out.

use futures_util::future::join_all;
use futures_util::poll;
use tokio::time::sleep;
use tower_throttle::store::MemoryStore;
use tower_throttle::{Limiter, Quota};

use crate::support::redis_server::RedisServer;
use crate::{
    GUARD, LONG, PATIENCE, SECOND, STEP, build, granted, limited, per_second, redis_store, set,
    settle, waiter,
};

#[tokio::test(start_paused = true)]
async fn a_permit_forfeited_after_a_change_goes_back_to_its_own_quota() {
    for waits in [false, true] {
        let store = MemoryStore::new();
        let limiter = build(per_second(1).store(store.clone()));
        let other = build(per_second(1).store(store));
        let mut permit = granted(&limiter).await;
        if waits {
            let waiter = waiter(&limiter).await;
            set(&limiter, Quota::per_second(2));
            permit = waiter.await.expect("a permit");
        } else {
            set(&limiter, Quota::per_second(2));
        }
        assert_eq!(granted(&limiter).await.remaining(), 1);
        limited(&other).await;
        permit.forfeit();
        settle(&limiter).await;
        granted(&other).await;
        assert_eq!(granted(&limiter).await.remaining(), 0);
        limited(&limiter).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_of_the_new_quota_is_not_given_to_those_who_wait_for_the_old() {
    let limiter = build(per_second(1));
    granted(&limiter).await;
    let mut old = waiter(&limiter).await;
    set(&limiter, Quota::per_second(2));
    granted(&limiter).await.forfeit();
    assert!(poll!(&mut old).is_pending());
    assert_eq!(granted(&limiter).await.remaining(), 1);
    assert!(old.await.expect("a permit").waited() >= STEP);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_after_a_change_gives_its_slot_back_to_its_own_quota() {
    let store = MemoryStore::new();
    let limiter = build(per_second(1).store(store.clone()));
    let other = build(per_second(1).store(store));
    granted(&limiter).await;
    let leaves = [waiter(&limiter).await, waiter(&limiter).await];
    sleep(SECOND / 10).await;
    set(&limiter, Quota::per_second(2));
    assert!(limited(&other).await.delay() > STEP * 2);
    drop(leaves);
    settle(&limiter).await;
    assert!(limited(&other).await.delay() < SECOND);
    assert_eq!(granted(&limiter).await.remaining(), 1);
    assert_eq!(granted(&limiter).await.remaining(), 0);
    limited(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn quotas_set_back_find_their_state_and_their_line() {
    let limiter = build(per_second(1).max_waiting(2));
    granted(&limiter).await;
    let first = waiter(&limiter).await;
    set(&limiter, Quota::per_second(5));
    granted(&limiter).await;
    set(&limiter, Quota::per_second(1));
    assert!(limited(&limiter).await.delay() > STEP);
    let second = waiter(&limiter).await;
    assert_eq!(limiter.queues(), 1);
    let error = limiter.acquire("a").await.expect_err("two wait already");
    assert!(error.is_queue_full());
    // Whoever came first gets what is given back.
    drop(first);
    let waited = second.await.expect("a permit").waited();
    assert!(waited >= STEP && waited < STEP + GUARD, "{waited:?}");
    settle(&limiter).await;
    // The line is gone, and what has departed still counts.
    set(&limiter, Quota::per_second(5));
    set(&limiter, Quota::per_second(1));
    assert!(limited(&limiter).await.delay() > SECOND - GUARD);
}

#[tokio::test(start_paused = true)]
async fn the_same_quotas_change_nothing() {
    let (second, minute) = (Quota::per_second(1), Quota::per_minute(30));
    let limiter = build(per_second(1).quota(minute));
    granted(&limiter).await;
    let waiters = [waiter(&limiter).await, waiter(&limiter).await];
    for quotas in [[second, minute], [minute, second]] {
        limiter.set_quotas(quotas).expect("valid quotas");
    }
    let last = waiter(&limiter).await;
    assert_eq!(limiter.queues(), 1);
    for (place, permit) in (1..).zip(join_all(waiters.into_iter().chain([last])).await) {
        let waited = permit.expect("a permit").waited();
        let due = STEP * place;
        assert!(waited >= due && waited < due + GUARD, "{waited:?}");
    }
}

#[tokio::test]
async fn another_limiter_on_the_same_redis_keeps_its_quota() {
    let server = RedisServer::start();
    let store = redis_store(&server).await;
    let quota = |limit| Quota::new(limit, LONG);
    let on_redis = || {
        // However late a busy machine wakes, no permit expires and none is reserved twice.
        let builder = Limiter::builder().quota(quota(2)).guard(PATIENCE);
        build(builder.store(store.clone()))
    };
    let (limiter, other) = (on_redis(), on_redis());
    granted(&limiter).await;
    let old = granted(&other).await;
    limited(&other).await;

    set(&limiter, quota(3));
    assert_eq!(other.policy().quotas(), [quota(2)]);
    for left in [2, 1, 0] {
        assert_eq!(granted(&limiter).await.remaining(), left);
    }
    limited(&limiter).await;
    limited(&other).await;
    old.forfeit();
    settle(&other).await;
    limited(&limiter).await;
    granted(&other).await;

    // Once told, it shares the quota; and once told back, the old one.
    set(&other, quota(3));
    limited(&other).await;
    set(&limiter, quota(2));
    limited(&limiter).await;
}
