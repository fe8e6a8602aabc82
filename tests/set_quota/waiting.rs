//! Recorded departures, and requests that wait, under changed quotas.

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, ErrorKind, Limiter, Permit, Quota};

use crate::set_quota::{
    GUARD, LONG, PATIENCE, SECOND, STEP, build, granted, limited, per_second, set, settle, waiter,
};
use support::redis_server::RedisServer;

#[tokio::test(start_paused = true)]
async fn recorded_departures_count_under_other_quotas() {
    for (before, after) in [(1, 3), (5, 2), (60, 80), (80, 40)] {
        let limiter = build(per_second(before));
        for _ in 0..before {
            granted(&limiter).await;
        }
        set(&limiter, Quota::per_second(after));
        for _ in before..after {
            granted(&limiter).await;
        }
        let delay = limited(&limiter).await.delay();
        assert!(delay > SECOND / 2 && delay <= STEP, "{delay:?}");
        sleep(delay).await;
        for _ in 0..after {
            granted(&limiter).await;
        }
        limited(&limiter).await;
    }
}

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

/// The new counter has not recorded the departures that are given back.
#[tokio::test(start_paused = true)]
async fn permits_of_another_algorithm_are_not_returned_to_the_new_counter() {
    for quota in ["10/h fixed-window start=first-request", "1/h gcra burst=10"] {
        let limiter = build(per_second(10));
        let mut permits = Vec::new();
        for _ in 0..10 {
            permits.push(granted(&limiter).await);
        }
        set(&limiter, quota.parse().expect("a quota"));
        let departed = async || {
            let mut count = 0;
            let decide = || limiter.try_acquire("a");
            while decide().await.expect("a decision").is_granted() {
                count += 1;
            }
            count
        };
        let before = departed().await;
        permits.into_iter().for_each(Permit::forfeit);
        settle(&limiter).await;
        let departed = before + departed().await;
        // A bucket holds one less, until the guard of the first ones has passed.
        assert!((9..=10).contains(&departed), "{departed} under {quota}");
    }
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
    settle(&limiter).await;
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

#[tokio::test]
async fn limiters_with_other_quotas_share_the_departures_of_a_key() {
    let server = RedisServer::start();
    let store = server.store().await;
    let quota = |limit| Quota::new(limit, LONG);
    let on_redis = |limit| {
        // No permit expires on a busy machine.
        let builder = Limiter::builder().quota(quota(limit)).guard(PATIENCE);
        build(builder.denial_cache(0).store(store.clone()))
    };
    let (limiter, other) = (on_redis(2), on_redis(3));
    granted(&limiter).await;
    let permit = granted(&other).await;
    limited(&limiter).await;
    granted(&other).await;
    limited(&other).await;

    set(&limiter, quota(4));
    assert_eq!(other.policy().quotas(), [quota(3)]);
    granted(&limiter).await;
    limited(&limiter).await;
    permit.forfeit();
    settle(&other).await;
    limited(&other).await;
    granted(&limiter).await;
}
