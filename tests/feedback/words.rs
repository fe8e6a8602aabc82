//! The headers that the limiter understands, and their effects.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest_middleware::ClientWithMiddleware;
use tower_throttle::feedback::{Advice, Headers};
use tower_throttle::{Limiter, ThrottleMiddleware};

use support::spend::{build, per_second};
use support::upstream::{Answer, Upstream};

const SECOND: Duration = Duration::from_secs(1);

fn client(throttle: ThrottleMiddleware) -> ClientWithMiddleware {
    let plain = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    reqwest_middleware::ClientBuilder::new(plain)
        .with(throttle)
        .build()
}

/// The key of the provider.
fn host(provider: &Upstream) -> String {
    provider.uri().trim_start_matches("http://").to_owned()
}

async fn get(client: &ClientWithMiddleware, provider: &Upstream) -> u16 {
    let answer = client.get(provider.uri()).send().await.expect("an answer");
    answer.status().into()
}

/// How long the next request would have to wait, after one that is answered so.
async fn wait_after(answer: Answer, make: impl Fn(Limiter) -> ThrottleMiddleware) -> Duration {
    let provider = Upstream::answering(move |_| answer.clone()).await;
    let limiter = build(per_second(100));
    let client = client(make(limiter.clone()));
    get(&client, &provider).await;
    let snapshot = limiter.peek(host(&provider)).await.expect("an answer");
    snapshot.delay()
}

fn assert_about(wait: Duration, expected: Duration, what: &str) {
    // The answer was read a while ago, longer on a busy machine.
    let range = expected.saturating_sub(SECOND * 5)..=expected;
    assert!(range.contains(&wait), "{what}: {wait:?}, not {expected:?}");
}

#[tokio::test]
async fn feedback_can_be_switched_off_or_replaced() {
    let answer = || {
        Answer::new(429)
            .header("Retry-After", 60)
            .header("X-Left", 0)
    };
    let wait = wait_after(answer(), |limiter| {
        ThrottleMiddleware::new(limiter).without_feedback()
    });
    assert_eq!(wait.await, Duration::ZERO);
    let wait = wait_after(answer(), |limiter| {
        ThrottleMiddleware::new(limiter).feedback(|response: &reqwest::Response| {
            match response.headers().contains_key("x-left") {
                true => Advice::pause(SECOND * 30),
                false => Advice::none(),
            }
        })
    });
    assert_about(wait.await, SECOND * 30, "a closure");
    let wait = wait_after(answer(), |limiter| {
        let headers = Headers::new().longest_pause(SECOND * 40);
        ThrottleMiddleware::new(limiter).feedback(headers)
    });
    assert_about(wait.await, SECOND * 40, "a cap");
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
