//! The headers that the limiter understands, and their effects.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest_middleware::ClientWithMiddleware;
use tower_throttle::feedback::{Advice, Headers};
use tower_throttle::{Limiter, ThrottleMiddleware};

use super::client;
use support::spend::{build, per_second};
use support::upstream::{Answer, Upstream};

const SECOND: Duration = Duration::from_secs(1);

/// The key of the provider.
fn host(provider: &Upstream) -> String {
    provider.uri().trim_start_matches("http://").to_owned()
}

async fn get(client: &ClientWithMiddleware, provider: &Upstream) -> u16 {
    let answer = client.get(provider.uri()).send().await.expect("an answer");
    answer.status().into()
}

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
        get(&client(make(limiter.clone())), &provider).await;
        let snapshot = limiter.peek(host(&provider)).await.expect("an answer");
        // The answer was read a while ago, longer on a busy machine.
        let range = Duration::from_secs(expected.saturating_sub(5))..=Duration::from_secs(expected);
        assert!(range.contains(&snapshot.delay()), "{snapshot:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_depart_than_are_said_to_remain() {
    // Five are left after the first request.
    let provider = Upstream::answering(|number| {
        let left = 5_usize.saturating_sub(number);
        Answer::new(200).header("RateLimit", format!("\"hour\";r={left};t=4"))
    })
    .await;
    let limiter = build(per_second(20));
    let client = client(ThrottleMiddleware::new(limiter.clone()));
    get(&client, &provider).await;
    let snapshot = limiter.peek(host(&provider)).await.expect("an answer");
    assert_eq!(snapshot.remaining(), 5);
    let answers = join_all((0..15).map(|_| get(&client, &provider)));
    assert_eq!(answers.await, [200; 15]);
    let arrivals = provider.arrivals();
    let early = arrivals.iter().filter(|&&at| at < SECOND * 39 / 10).count();
    assert_eq!(early, 6, "{arrivals:?}");
}
