//! The limits that an upstream announces win over the configuration.

use tower_throttle::feedback::{Advice, Feedback, Headers};
use wiremock::ResponseTemplate;

use crate::client::{Sender, by_layer, by_middleware, get};
use crate::prelude::*;

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
async fn exhausted_tokens_hold_back_the_requests_that_cost_tokens() {
    let tokens = "1000/m unit=tokens default_cost=10";
    for (policy, held_back) in [
        (&["10/s", tokens][..], [true, false]),
        // Any request may cost tokens if the quotas do not count them.
        (&["10/s"], [true, true]),
    ] {
        let limiter = build(under(policy));
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
async fn an_answer_is_applied_even_if_the_caller_is_gone_or_the_store_is_out() {
    let store = FailingStore::new(MemoryStore::new());
    let limiter = build(per_second(10).store(store.clone()));
    let service = answers(move |_| {
        store.fail_next(2, Fault::Unreachable);
        Response::builder().status(429).header("retry-after", "20")
    });
    let service = ThrottleLayer::new(limiter.clone()).layer(service);
    let caller = tokio::spawn(service.oneshot(request()));
    sleep(MS).await;
    caller.abort();
    sleep(SECOND).await;
    let snapshot = limiter.peek("api.example.com").await.expect("an answer");
    assert_eq!(snapshot.delay().as_secs(), 18);
}

#[tokio::test(start_paused = true)]
async fn responses_of_any_type_can_pause() {
    let reader: Arc<dyn Feedback<Option<u64>> + Send + Sync> =
        Arc::new(|busy: &Option<u64>| match busy {
            Some(seconds) => Advice::pause(Duration::from_secs(*seconds)),
            None => Advice::none(),
        });
    let layer = ThrottleLayer::new(build(per_second(10))).key(key::constant("printer"));
    let service = layer
        .unreported()
        .feedback(move |busy: &_| reader.read(busy))
        .layer(service_fn(|busy: Option<u64>| async move {
            Ok::<_, Infallible>(busy)
        }));
    let print = async |busy| service.clone().oneshot(busy).await.expect("an answer");
    print(None).await;
    let start = Instant::now();
    print(Some(30)).await;
    print(None).await;
    assert!(start.elapsed() >= SECOND * 30);
}

fn brief() -> Headers {
    Headers::new().longest_pause(SECOND * 40)
}

fn pause(response: &reqwest::Response) -> Advice {
    match response.status().as_u16() {
        429 => Advice::pause(SECOND * 30),
        _ => Advice::none(),
    }
}

#[tokio::test]
async fn an_upstream_that_refuses_is_paused_unless_feedback_is_switched_off_or_replaced() {
    let refused = || ResponseTemplate::new(429).insert_header("retry-after", "60");
    let upstream = Upstream::answering(move |_| refused()).await;
    let senders: [fn(Limiter) -> Sender; 8] = [
        |it| by_layer(ThrottleLayer::new(it)),
        |it| by_layer(ThrottleLayer::new(it).without_feedback()),
        |it| by_layer(ThrottleLayer::new(it).feedback(pause)),
        |it| by_layer(ThrottleLayer::new(it).feedback(brief())),
        |it| by_middleware(ThrottleMiddleware::new(it)),
        |it| by_middleware(ThrottleMiddleware::new(it).without_feedback()),
        |it| by_middleware(ThrottleMiddleware::new(it).feedback(pause)),
        |it| by_middleware(ThrottleMiddleware::new(it).feedback(brief())),
    ];
    let expected = [60_u32, 0, 30, 40].into_iter().cycle();
    for (nth, (make, expected)) in senders.into_iter().zip(expected).enumerate() {
        let limiter = build(per_second(100));
        let answer = get(&make(limiter.clone()), upstream.uri()).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), 429);
        assert!(answer.extensions().get::<Departure>().is_some());
        let key = upstream.uri().replace("http://", "");
        let delay = limiter.peek(key).await.expect("an answer").delay();
        // The answer was read a while ago, longer on a busy machine.
        let range = SECOND * expected.saturating_sub(5)..=SECOND * expected;
        assert!(range.contains(&delay), "{nth}: {delay:?}");
        let other = limiter.peek("other").await.expect("an answer");
        assert!(other.delay().is_zero());
    }
}
