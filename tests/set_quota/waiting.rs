//! Recorded departures, and requests that wait, under changed quotas.

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, ErrorKind, Limiter, Quota};

use crate::set_quota::{GUARD, SECOND, STEP, build, granted, limited, per_second, set, waiter};

#[tokio::test(start_paused = true)]
async fn another_algorithm_starts_from_zero_and_the_former_one_continues() {
    let limiter = build(per_second(2));
    granted(&limiter).await;
    granted(&limiter).await;
    limited(&limiter).await;
    let gcra = Algorithm::Gcra { burst: 2 };
    set(&limiter, Quota::per_second(2).algorithm(gcra));
    granted(&limiter).await;
    set(&limiter, Quota::per_second(2));
    limited(&limiter).await;
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
    let mut waiters = Vec::new();
    for place in 0..30 {
        let acquire = limiter.acquire("a");
        waiters.push(tokio::spawn(async move {
            acquire.await.expect("a permit");
            (start.elapsed(), place)
        }));
        tokio::task::yield_now().await;
    }
    sleep(SECOND / 2).await;
    set(&limiter, Quota::per_second(4));
    let departed = join_all(waiters).await.into_iter();
    let departed: Vec<_> = departed.map(|it| it.expect("no panic")).collect();
    assert!(departed.is_sorted(), "{departed:?}");
    let after: History = departed[10..].iter().map(|(at, _)| *at).collect();
    after.assert_at_most(4, SECOND);
    let last = departed[29].0;
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
