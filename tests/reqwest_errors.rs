//! Errors of `ThrottleMiddleware`, and the departure in a response.

use std::error::Error as _;
use std::time::Duration;

use futures_util::poll;
use reqwest_middleware::ClientWithMiddleware;
use support::spend::build;
use support::upstream::Upstream;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::key::{self, KeyExtractor};
use tower_throttle::{
    Decision, Departure, Error, ErrorKind, Limiter, LimiterBuilder, Quota, ThrottleMiddleware,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// A busy machine may take this long for a test.
const MINUTE: Duration = Duration::from_secs(60);

fn per_hour(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_hour(limit))
}

fn client_with(middleware: ThrottleMiddleware) -> ClientWithMiddleware {
    // The upstream is on this machine, whatever proxy the environment names.
    let plain = reqwest::Client::builder().no_proxy().build();
    reqwest_middleware::ClientBuilder::new(plain.expect("a client"))
        .with(middleware)
        .build()
}

fn client(limiter: &Limiter) -> ClientWithMiddleware {
    client_with(ThrottleMiddleware::new(limiter.clone()))
}

/// A client whose requests all spend the quota of the key `upstream`.
fn client_of_one_key(limiter: &Limiter) -> ClientWithMiddleware {
    client_with(ThrottleMiddleware::new(limiter.clone()).key(key::constant("upstream")))
}

async fn send(client: &ClientWithMiddleware, upstream: &Upstream) -> reqwest::Response {
    let answer = client.get(upstream.uri()).send().await;
    answer.expect("an answer")
}

/// The limiter's error, got as a user would get it.
async fn refusal(client: &ClientWithMiddleware, upstream: &Upstream) -> Error {
    let answer = client.get(upstream.uri()).send().await;
    let error = answer.expect_err("a refusal");
    Error::find(&error).expect("our own error").clone()
}

/// Waits until no queue is left, so that returned departures have arrived.
async fn settle(limiter: &Limiter) {
    let deadline = Instant::now() + MINUTE;
    while limiter.queues() > 0 {
        assert!(Instant::now() < deadline, "a queue is left");
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn the_wait_it_would_have_been_comes_out_of_the_error() {
    let upstream = Upstream::start().await;
    let client = client(&build(per_hour(1).max_wait(MINUTE)));
    send(&client, &upstream).await;
    let error = refusal(&client, &upstream).await;
    assert!(error.is_limited() && !error.is_store() && error.kind() != ErrorKind::NoKey);
    let wait = error.wait().expect("a wait");
    assert!(wait > HOUR - MINUTE && wait < HOUR + MINUTE, "{wait:?}");
    assert!(error.source().is_none());
    assert_eq!(upstream.arrivals().len(), 1);
}

#[tokio::test]
async fn a_full_queue_refuses() {
    let upstream = Upstream::start().await;
    let client = client(&build(per_hour(1).max_waiting(1)));
    send(&client, &upstream).await;
    let mut waiting = Box::pin(client.get(upstream.uri()).send());
    assert!(poll!(&mut waiting).is_pending());
    let error = refusal(&client, &upstream).await;
    assert_eq!(error.kind(), ErrorKind::QueueFull);
    assert_eq!(upstream.arrivals().len(), 1);
}

#[tokio::test]
async fn each_request_spends_its_cost() {
    let upstream = Upstream::start().await;
    let limiter = build(per_hour(10));
    let costs = |cost| client_with(ThrottleMiddleware::new(limiter.clone()).cost(move |_| cost));
    for (cost, remaining) in [(1, 9), (5, 4)] {
        let response = send(&costs(cost), &upstream).await;
        let departure: &Departure = response.extensions().get().expect("a departure");
        assert_eq!(departure.remaining(), remaining);
    }
    for cost in [0, 11] {
        let error = refusal(&costs(cost), &upstream).await;
        assert_eq!(error.kind(), ErrorKind::InvalidCost);
    }
}

#[tokio::test]
async fn a_request_without_a_key_is_refused_and_never_sent() {
    let upstream = Upstream::start().await;
    let limiter = build(per_hour(10));
    let middleware = ThrottleMiddleware::new(limiter).key(key::header("x-tenant"));
    let client = client_with(middleware);
    let error = refusal(&client, &upstream).await;
    assert_eq!(error.kind(), ErrorKind::NoKey);
    assert!(error.to_string().contains("x-tenant"), "{error}");
    assert!(upstream.arrivals().is_empty());
}

#[tokio::test]
async fn errors_of_the_client_pass_through() {
    let client = client(&build(per_hour(10)));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("a port"));
    // Accepts, and hangs up without an answer.
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    match client.get(url).send().await.expect_err("nobody answers") {
        reqwest_middleware::Error::Reqwest(error) => assert!(error.is_request(), "{error}"),
        other @ reqwest_middleware::Error::Middleware(_) => panic!("{other}"),
    }
}

fn departure(response: &reqwest::Response) -> Departure {
    let departure = response.extensions().get();
    *departure.expect("a departure")
}

#[tokio::test]
async fn a_response_carries_what_remained_when_its_request_departed() {
    let upstream = Upstream::start().await;
    let client = client(&build(per_hour(3)));
    for remaining in [2, 1, 0] {
        let begun = Instant::now();
        let departure = departure(&send(&client, &upstream).await);
        assert_eq!(departure.remaining(), remaining);
        assert!(departure.waited() <= begun.elapsed(), "{departure:?}");
        let reset = departure.reset();
        assert!(reset > HOUR - MINUTE && reset < HOUR + MINUTE, "{reset:?}");
    }
}

#[tokio::test]
async fn a_response_carries_how_long_its_request_waited() {
    let upstream = Upstream::start().await;
    let window = Duration::from_millis(500);
    let client = client(&build(Limiter::builder().quota(Quota::new(1, window))));
    let first = Instant::now();
    send(&client, &upstream).await;
    let second = Instant::now();
    let waited = departure(&send(&client, &upstream).await).waited();
    // The first departed at some time between the two readings of the clock.
    assert!(waited + (second - first) >= window, "{waited:?}");
    assert!(waited <= second.elapsed(), "{waited:?}");
}

#[tokio::test]
async fn exempt_requests_are_sent_without_limit_and_carry_no_departure() {
    let upstream = Upstream::start().await;
    let limiter = build(per_hour(1).max_wait(Duration::ZERO));
    let exempt = key::header("x-tenant").or_exempt();
    let client = client_with(ThrottleMiddleware::new(limiter).key(exempt));
    for _ in 0..10 {
        let response = send(&client, &upstream).await;
        assert!(response.extensions().get::<Departure>().is_none());
    }
    assert_eq!(upstream.arrivals().len(), 10);
}

#[tokio::test]
async fn a_key_of_ones_own_decides_whose_quota_is_spent() {
    fn by_first_segment(request: &reqwest::Request) -> Option<String> {
        let mut segments = request.url().path_segments()?;
        segments.next().map(String::from)
    }
    fn assert_extractor(_: &impl KeyExtractor<reqwest::Request>) {}
    assert_extractor(&by_first_segment);

    let upstream = Upstream::start().await;
    let limiter = build(per_hour(1).max_wait(Duration::ZERO));
    let client = client_with(ThrottleMiddleware::new(limiter).key(by_first_segment));
    let status = async |path: &str| {
        let answer = client.get(upstream.uri() + path).send().await;
        answer.ok().map(|answer| answer.status().as_u16())
    };
    assert_eq!(status("/a/1").await, Some(200));
    assert_eq!(status("/b/1").await, Some(200));
    assert_eq!(status("/a/2").await, None);
    assert_eq!(upstream.arrivals().len(), 2);
}

/// Drops requests that wait, then asks how long the next one would have to wait.
async fn assert_dropped_requests_consume_nothing(limiter: &Limiter) {
    let upstream = Upstream::start().await;
    let client = client_of_one_key(limiter);
    send(&client, &upstream).await;
    for patience in [0, 1, 30] {
        let patience = Duration::from_millis(patience);
        let dropped = timeout(patience, client.get(upstream.uri()).send()).await;
        assert!(dropped.is_err(), "departed within the hour");
    }
    settle(limiter).await;
    let decision = limiter.try_acquire("upstream").await.expect("a decision");
    let Decision::Limited(limited) = decision else {
        panic!("one request per hour has departed already");
    };
    assert!(limited.delay() < HOUR + MINUTE, "{limited:?}");
    assert_eq!(upstream.arrivals().len(), 1);
}

#[tokio::test]
async fn a_request_that_is_dropped_while_it_waits_spends_nothing_in_memory() {
    assert_dropped_requests_consume_nothing(&build(per_hour(1))).await;
}
