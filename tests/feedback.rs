//! The limits that an upstream announces win over the configuration.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use reqwest_middleware::ClientWithMiddleware;
use support::spend::{build, per_second};
use support::upstream::{Answer, Upstream};
use tokio::time::Instant;
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt as _, service_fn};
use tower_throttle::feedback::{Advice, Headers};
use tower_throttle::{Cost, Departure, Limiter, Quota, ThrottleLayer, ThrottleMiddleware, key};

use crate::client::throttled;

const SECOND: Duration = Duration::from_secs(1);

fn limiter(limit: u32) -> Limiter {
    let builder = Limiter::builder().quota(Quota::per_second(limit));
    builder.build().expect("a valid policy")
}

fn request() -> Request<String> {
    let request = Request::get("https://api.example.com/");
    request.body(String::new()).expect("a request")
}

/// Answers each request by its number, from 0.
fn answers<F>(
    answer: F,
) -> impl Service<Request<String>, Response = Response<()>, Error = Infallible, Future: Send> + Clone
where
    F: Fn(usize) -> http::response::Builder + Clone + Send + Sync,
{
    let number = Arc::new(AtomicUsize::new(0));
    service_fn(move |_| {
        let answer = answer(number.fetch_add(1, Ordering::SeqCst));
        async move { Ok(answer.body(()).expect("a response")) }
    })
}

#[tokio::test(start_paused = true)]
async fn a_service_that_answers_429_is_paused() {
    let limiter = limiter(10);
    let service = ThrottleLayer::new(limiter.clone()).layer(answers(|number| match number {
        0 => Response::builder().status(429).header("retry-after", "20"),
        _ => Response::builder(),
    }));
    let start = Instant::now();
    let response = service.clone().oneshot(request()).await.expect("an answer");
    // The caller gets the answer of the service, and the departure.
    assert_eq!(response.status(), 429);
    assert!(response.extensions().get::<Departure>().is_some());
    assert!(start.elapsed() < SECOND);
    let response = service.oneshot(request()).await.expect("an answer");
    assert_eq!(response.status(), 200);
    let waited = response
        .extensions()
        .get::<Departure>()
        .map(Departure::waited);
    assert!(waited >= Some(SECOND * 20), "{waited:?}");
    let other = limiter.try_acquire("other").await.expect("an answer");
    assert!(other.is_granted());
}

#[tokio::test(start_paused = true)]
async fn exhausted_tokens_hold_back_the_requests_that_cost_tokens() {
    let tokens = Quota::per_minute(1_000).unit("tokens").default_cost(10);
    for (policy, held_back) in [
        (vec![Quota::per_second(10), tokens], [true, false]),
        // Any request may cost tokens if the quotas do not count them.
        (vec![Quota::per_second(10)], [true, true]),
    ] {
        let limiter = policy
            .into_iter()
            .fold(Limiter::builder(), |it, quota| it.quota(quota));
        let limiter = limiter.build().expect("a valid policy");
        let has_tokens = held_back == [true, false];
        let layer =
            ThrottleLayer::new(limiter).cost(move |request: &Request<String>| {
                match request.body().is_empty() && has_tokens {
                    true => Cost::default().of("tokens", 0),
                    false => Cost::default(),
                }
            });
        let service = layer.layer(answers(|number| match number {
            0 => Response::builder()
                .header("x-ratelimit-remaining-tokens", "0")
                .header("x-ratelimit-reset-tokens", "20s"),
            _ => Response::builder(),
        }));
        let start = Instant::now();
        let send = |body: &str| {
            let request = request().map(|_| body.to_owned());
            let answer = service.clone().oneshot(request);
            async move {
                answer.await.expect("an answer");
                start.elapsed() >= SECOND * 20
            }
        };
        assert!(!send("prompt").await);
        let (with, without) = tokio::join!(send("prompt"), send(""));
        assert_eq!([with, without], held_back);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_applied_even_if_the_caller_is_gone() {
    let limiter = limiter(10);
    let service = answers(|_| Response::builder().status(429).header("retry-after", "20"));
    let service = ThrottleLayer::new(limiter.clone()).layer(service);
    let caller = tokio::spawn(service.oneshot(request()));
    tokio::task::yield_now().await;
    caller.abort();
    tokio::task::yield_now().await;
    let snapshot = limiter.peek("api.example.com").await.expect("an answer");
    assert_eq!(snapshot.delay(), SECOND * 20);
}

#[tokio::test(start_paused = true)]
async fn feedback_can_be_switched_off() {
    let service = answers(|_| Response::builder().status(429).header("retry-after", "20"));
    let layer = ThrottleLayer::new(limiter(10)).without_feedback();
    let service = layer.layer(service);
    let start = Instant::now();
    for _ in 0..3 {
        service.clone().oneshot(request()).await.expect("an answer");
    }
    assert!(start.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn responses_of_any_type_can_pause() {
    let limiter = limiter(10);
    let service = ServiceBuilder::new()
        .layer(
            ThrottleLayer::new(limiter.clone())
                .key(key::constant("printer"))
                .unreported()
                .feedback(|busy: &Option<u64>| match busy {
                    Some(seconds) => Advice::pause(Duration::from_secs(*seconds)),
                    None => Advice::none(),
                }),
        )
        .service(service_fn(|busy: Option<u64>| async move {
            Ok::<_, Infallible>(busy)
        }));
    let print = async |busy| service.clone().oneshot(busy).await.expect("an answer");
    print(None).await;
    let start = Instant::now();
    print(Some(30)).await;
    print(None).await;
    assert!(start.elapsed() >= SECOND * 30);
}

#[tokio::test]
async fn feedback_of_a_client_can_be_switched_off_or_replaced() {
    type Make = fn(Limiter) -> ClientWithMiddleware;
    let cases: [(Make, u64); 3] = [
        (
            |limiter| throttled(ThrottleMiddleware::new(limiter).without_feedback()),
            0,
        ),
        (
            |limiter| {
                let pause = |response: &reqwest::Response| match response.status().as_u16() {
                    429 => Advice::pause(SECOND * 30),
                    _ => Advice::none(),
                };
                throttled(ThrottleMiddleware::new(limiter).feedback(pause))
            },
            30,
        ),
        (
            |limiter| {
                let headers = Headers::new().longest_pause(SECOND * 40);
                throttled(ThrottleMiddleware::new(limiter).feedback(headers))
            },
            40,
        ),
    ];
    for (make, expected) in cases {
        let busy = |_| Answer::new(429).header("Retry-After", 60);
        let provider = Upstream::answering(busy).await;
        let limiter = build(per_second(100));
        let request = make(limiter.clone()).get(provider.uri());
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
