//! Retries outside the throttle: each attempt departs by a permit of its own, and after a pause.

use std::time::Duration;

use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tower_throttle::{Limiter, Quota, ThrottleMiddleware};

use support::upstream::{Answer, Upstream};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Gets the provider's answer with as many attempts as it takes.
async fn insist(provider: &Upstream, quota: Quota) -> u16 {
    let limiter = Limiter::builder().quota(quota).buffer(MS * 300).build();
    let plain = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    // Far sooner than the quota allows.
    let at_once = ExponentialBackoff::builder().retry_bounds(MS, MS * 2);
    let retry = RetryTransientMiddleware::new_with_policy(at_once.build_with_max_retries(5));
    let client = reqwest_middleware::ClientBuilder::new(plain)
        .with(retry)
        .with(ThrottleMiddleware::new(limiter.expect("a valid policy")))
        .build();
    let answer = client.get(provider.uri()).send().await.expect("an answer");
    answer.status().into()
}

#[tokio::test]
async fn an_attempt_waits_until_the_pause_is_over_that_the_one_before_was_told() {
    let provider = Upstream::answering(|number| match number {
        0 => Answer::new(429).header("Retry-After", 2),
        _ => Answer::new(200),
    })
    .await;
    assert_eq!(insist(&provider, Quota::per_second(100)).await, 200);
    let arrivals = provider.arrivals();
    assert_eq!(arrivals.len(), 2);
    assert!(arrivals[1] >= SECOND * 2, "{arrivals:?}");
}
