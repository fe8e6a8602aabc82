//! Feedback of a reqwest client, which can be replaced.

use std::time::Duration;

use tower_throttle::feedback::{Advice, Headers};
use tower_throttle::{Limiter, ThrottleMiddleware};

use crate::client::throttled;
use support::spend::{build, per_second};
use support::upstream::{Answer, Upstream};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn feedback_can_be_switched_off_or_replaced() {
    type Make = fn(Limiter) -> ThrottleMiddleware;
    let cases: [(Make, u64); 3] = [
        (
            |limiter| ThrottleMiddleware::new(limiter).without_feedback(),
            0,
        ),
        (
            |limiter| {
                let pause = |response: &reqwest::Response| match response.status().as_u16() {
                    429 => Advice::pause(SECOND * 30),
                    _ => Advice::none(),
                };
                ThrottleMiddleware::new(limiter).feedback(pause)
            },
            30,
        ),
        (
            |limiter| {
                let headers = Headers::new().longest_pause(SECOND * 40);
                ThrottleMiddleware::new(limiter).feedback(headers)
            },
            40,
        ),
    ];
    for (make, expected) in cases {
        let busy = |_| Answer::new(429).header("Retry-After", 60);
        let provider = Upstream::answering(busy).await;
        let limiter = build(per_second(100));
        let request = throttled(make(limiter.clone())).get(provider.uri());
        request.send().await.expect("an answer");
        let snapshot = limiter
            .peek(provider.uri().replace("http://", ""))
            .await
            .expect("an answer");
        // The answer was read a while ago, longer on a busy machine.
        let range = Duration::from_secs(expected.saturating_sub(5))..=Duration::from_secs(expected);
        assert!(range.contains(&snapshot.delay()), "{snapshot:?}");
    }
}
