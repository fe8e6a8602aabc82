//! The parts of the policy that change, and those that stay.

use std::sync::Arc;

use http::{Request, Response};
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _};
use tower_throttle::{ErrorKind, Quota, ThrottleLayer, key};

use crate::set_quota::{GUARD, SECOND, STEP, build, granted, limited, per_second, set, waiter};

#[tokio::test(start_paused = true)]
async fn all_clones_see_the_change() {
    let limiter = build(per_second(1));
    let clone = limiter.clone();
    let service = tower::service_fn(|_: Request<()>| async {
        Ok::<_, std::convert::Infallible>(Response::new(()))
    });
    let service = ThrottleLayer::new(limiter.clone())
        .key(key::constant("a"))
        .layer(service);
    let quotas = [Quota::per_second(2), Quota::per_minute(9)];
    clone.set_quotas(quotas).expect("valid quotas");
    assert_eq!(limiter.policy().quotas(), quotas);
    assert_eq!(limiter.policy().label(), clone.policy().label());
    let start = Instant::now();
    for _ in 0..2 {
        let response = service.clone().oneshot(Request::new(())).await;
        response.expect("a response");
    }
    assert!(start.elapsed().is_zero());
    limited(&limiter).await;
    limited(&clone).await;
}

#[tokio::test(start_paused = true)]
async fn invalid_quotas_change_nothing_and_are_named() {
    let limiter = build(per_second(1));
    granted(&limiter).await;
    let waiter = waiter(&limiter).await;
    let before = limiter.policy();
    let good = Quota::per_second(7);
    for (quotas, problem) in [
        (vec![], "quota: at least one is needed"),
        (
            vec![good, Quota::per_second(0)],
            "quota `0/s`: the limit is zero",
        ),
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
async fn the_rest_of_the_policy_stays() {
    let builder = per_second(1).name("search").buffer(GUARD * 3);
    let limiter = build(builder.max_wait(SECOND * 2).max_waiting(1));
    let quotas = [Quota::new(1, SECOND / 2), Quota::per_hour(9)];
    limiter.set_quotas(quotas).expect("valid quotas");
    let policy = limiter.policy();
    assert_eq!(policy.name(), Some("search"));
    assert_eq!((policy.buffer(), policy.guard()), (GUARD * 3, GUARD));

    granted(&limiter).await;
    let step = SECOND / 2 + GUARD * 4;
    assert_eq!(limited(&limiter).await.delay(), step);
    let waits = waiter(&limiter).await;
    let error = limiter.acquire("a").await.expect_err("one waits already");
    assert_eq!(error.kind(), ErrorKind::QueueFull);
    drop(waits);
    set(&limiter, Quota::per_hour(1));
    let error = limiter.acquire("a").await.expect_err("an hour is too long");
    assert!(error.is_limited() && error.wait() > Some(SECOND * 2));
}
