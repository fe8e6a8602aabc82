//! Quotas that change at runtime: recorded departures count, and requests that wait depart under the new quotas.

use tower_throttle::{Permit, Snapshot};

use crate::limiter::{GUARD, STEP, departures, per_second, queue, waiter};
use crate::prelude::*;

fn set(limiter: &Limiter, quota: Quota) {
    limiter.set_quota(quota).expect("a valid quota");
}

async fn granted(limiter: &Limiter) -> Permit {
    attempt(limiter, "a", 1).await.expect("a permit")
}

async fn limited(limiter: &Limiter) -> Snapshot {
    attempt(limiter, "a", 1).await.expect_err("it is limited")
}

#[tokio::test(start_paused = true)]
async fn invalid_quotas_change_nothing_and_are_named() {
    let limiter = build(per_second(1));
    granted(&limiter).await;
    let waiter = waiter(&limiter).await;
    let before = limiter.policy();
    let (good, none) = (Quota::per_second(7), Quota::per_second(0));
    for (quotas, problem) in [
        (vec![], "quota: at least one is needed"),
        (vec![good, none], "quota: `0/s`: the limit is zero"),
        (vec![good, good], "is given twice"),
    ] {
        let error = limiter.set_quotas(quotas).expect_err("invalid");
        assert!(error.to_string().contains(problem), "{error}");
        assert!(Arc::ptr_eq(&limiter.policy(), &before));
    }
    assert!(limited(&limiter).await.delay() >= STEP);
    let waited = waiter.await.expect("a permit").waited();
    assert!(waited >= STEP && waited < STEP + GUARD, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_depart_at_once_under_a_raised_quota() {
    let limiter = build(Limiter::builder().quota(Quota::per_hour(1)).guard(GUARD));
    granted(&limiter).await;
    let waiters = [waiter(&limiter).await, waiter(&limiter).await];
    let waiters = tokio::spawn(join_all(waiters));
    sleep(3 * SECOND).await;
    let start = Instant::now();
    set(&limiter, Quota::per_hour(3));
    for permit in waiters.await.expect("no panic") {
        permit.expect("a permit");
    }
    assert!(start.elapsed() < GUARD, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_keep_to_a_lowered_quota_and_to_their_order() {
    let limiter = build(per_second(10));
    let start = Instant::now();
    let queue = queue(&limiter, 30).await;
    sleep(SECOND / 2).await;
    set(&limiter, Quota::per_second(4));
    let departed = departures(queue).await;
    assert!(departed.is_sorted(), "{departed:?}");
    let lowered: History = departed[10..].iter().copied().collect();
    lowered.assert_at_most(4, SECOND);
    let last = departed[29] - start;
    assert!(last >= 5 * SECOND && last < STEP * 6, "{last:?}");
}

/// Nothing else would tell its caller that it can never depart.
#[tokio::test(start_paused = true)]
async fn a_request_that_costs_more_than_the_new_quota_holds_fails() {
    let limiter = build(per_second(5));
    granted(&limiter).await;
    let costly = tokio::spawn(limiter.acquire("a").cost(5));
    sleep(SECOND / 10).await;
    set(&limiter, Quota::per_second(2));
    let error = costly.await.expect("no panic").expect_err("too costly");
    assert_eq!(error.kind(), ErrorKind::InvalidCost, "{error}");
    granted(&limiter).await;
}

/// Requests of a process far from the server, while others with a log of another shape depart all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_other_shapes_do_not_keep_a_process_from_departing() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    proxy.delay(Duration::from_millis(20));
    let quota = |text: &str| Limiter::builder().quota(text.parse().expect("a quota"));
    let store = RedisStore::connect(&proxy.url()).await;
    let far = build(quota("50/100ms").store(store.expect("a connection")));
    let mut traffic = JoinSet::new();
    for _ in 0..5 {
        let near = build(quota("60/100ms").store(server.store().await));
        traffic.spawn(async move {
            loop {
                near.acquire("a").await.expect("a permit");
                sleep(Duration::from_millis(15)).await;
            }
        });
    }
    sleep(Duration::from_millis(300)).await;
    let requests = join_all((0..50).map(|_| far.acquire("a")));
    let permits = timeout(60 * SECOND, requests).await;
    for permit in permits.expect("none waits forever") {
        permit.expect("a permit");
    }
    assert!(!far.health().is_out());
    traffic.shutdown().await;
}
