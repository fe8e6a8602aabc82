//! Those who came before the change keep the quotas that they came under.

use futures_util::future::join_all;
use futures_util::poll;
use http::{Request, Response};
use tokio::time::{advance, sleep, timeout};
use tower::{Layer as _, ServiceExt as _};
use tower_test::mock;
use tower_throttle::store::MemoryStore;
use tower_throttle::{Quota, ThrottleLayer, key};

use crate::labelled::Labelled;
use crate::{
    GUARD, PATIENCE, SECOND, STEP, build, granted, limited, per_second, set, settle, waiter,
};

#[tokio::test(start_paused = true)]
async fn those_who_wait_keep_their_slots() {
    for quota in [Quota::per_second(100), Quota::per_hour(1)] {
        let limiter = build(per_second(1));
        granted(&limiter).await;
        let waiters = [
            waiter(&limiter).await,
            waiter(&limiter).await,
            waiter(&limiter).await,
        ];
        set(&limiter, quota);
        // Nor do they keep others waiting.
        granted(&limiter).await;
        for (place, permit) in (1..).zip(join_all(waiters).await) {
            let waited = permit.expect("a permit").waited();
            let due = STEP * place;
            assert!(waited >= due && waited < due + GUARD, "{waited:?}");
        }
        settle(&limiter).await;
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_an_answer_get_slots_of_the_old_quota() {
    let store = MemoryStore::new();
    let limiter = build(per_second(1).store(Labelled(store.clone())));
    let other = build(per_second(1).store(store));
    granted(&limiter).await;
    // No driver has looked yet.
    let waiter = waiter(&limiter).await;
    set(&limiter, Quota::per_minute(5));
    let permit = waiter.await.expect("a permit");
    assert_eq!(permit.reset(), SECOND, "the label of the old quota");
    assert!(limited(&other).await.delay() > SECOND - GUARD);
}

#[tokio::test(start_paused = true)]
async fn lines_are_counted_for_old_and_new_quotas() {
    let limiter = build(per_second(1));
    granted(&limiter).await;
    let old = waiter(&limiter).await;
    assert_eq!(limiter.queues(), 1);
    set(&limiter, Quota::per_minute(1));
    assert_eq!(limiter.queues(), 1);
    granted(&limiter).await;
    let new = waiter(&limiter).await;
    assert_eq!(limiter.queues(), 2);
    drop(new);
    old.await.expect("a permit");
    settle(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_wake_up_gets_another_slot_of_its_own_quota() {
    let limiter = build(per_second(1));
    granted(&limiter).await;
    let late = waiter(&limiter).await;
    sleep(SECOND / 2).await;
    set(&limiter, Quota::per_hour(1));
    granted(&limiter).await;
    // Everyone sleeps through the slot and its guard.
    advance(SECOND).await;
    let waited = late.await.expect("a permit").waited();
    assert!(waited >= SECOND * 3 / 2, "{waited:?}");
    assert!(waited < SECOND * 4, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_service_is_late_gets_another_slot_of_its_own_quota() {
    let (mock, mut handle) = mock::pair::<Request<()>, Response<()>>();
    handle.allow(0);
    let limiter = build(per_second(3));
    let service = ThrottleLayer::new(limiter.clone()).key(key::constant("a"));
    let mut response = Box::pin(service.layer(mock).oneshot(Request::new(())));
    assert!(poll!(&mut response).is_pending());
    set(&limiter, Quota::per_hour(1));
    granted(&limiter).await;
    // Longer than its permit is valid.
    assert!(timeout(SECOND * 2, &mut response).await.is_err());
    handle.allow(1);
    let answer = async {
        let (_, respond) = handle.next_request().await.expect("a service");
        respond.send_response(Response::new(()));
    };
    let (response, ()) = timeout(PATIENCE, async { tokio::join!(response, answer) })
        .await
        .expect("not the hour of the new quota");
    response.expect("a response");
    settle(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_has_the_quotas_that_are_set_when_it_is_first_polled() {
    let limiter = build(per_second(1));
    let acquire = limiter.acquire("a");
    let decision = limiter.try_acquire("a");
    let run = limiter.run("a", || async {});
    set(&limiter, Quota::per_second(3));
    assert_eq!(acquire.await.expect("a permit").remaining(), 2);
    let decision = decision.await.expect("a decision");
    assert_eq!(decision.permit().expect("a permit").remaining(), 1);
    run.await.expect("a permit");
    limited(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_costly_request_that_waits_departs_though_the_new_quota_holds_less() {
    let limiter = build(per_second(5));
    granted(&limiter).await;
    let mut waiter = Box::pin(limiter.acquire("a").cost(5));
    assert!(poll!(&mut waiter).is_pending());
    set(&limiter, Quota::per_second(2));
    let error = limiter.acquire("a").cost(5).await.expect_err("too costly");
    assert!(error.is_invalid_cost());
    waiter.await.expect("a permit");
}
