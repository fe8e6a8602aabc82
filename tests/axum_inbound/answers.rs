//! What is answered, with which headers and which body.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Response, StatusCode};
use serde_json::json;
use tokio::time::{Instant, sleep_until};
use tower_throttle::tower::inbound::Refused;
use tower_throttle::{FailureMode, Limiter, Quota, ThrottleLayer, key};

use crate::axum_inbound::client::Client;
use crate::axum_inbound::server::{Server, build, by_client, limiter};
use support::redis_server::RedisServer;

const FIELDS: [&str; 6] = [
    "ratelimit-policy",
    "ratelimit",
    "retry-after",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

#[tokio::test]
async fn over_the_limit_it_answers_429_and_says_until_when() {
    let builder = Limiter::builder()
        .name("api")
        .quota(Quota::per_second(2))
        .quota(Quota::per_hour(3));
    let server = Server::start(hello().layer(by_client(&build(builder)))).await;
    let client = Client::new(&server, "a");

    for remaining in [1, 0] {
        let answer = client.get("/").await;
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, "hello"));
        let (name, r, t) = answer.rate_limit();
        assert_eq!((&name[..], r), ("api", remaining));
        assert_eq!(
            t, 0,
            "of joint quotas, it would be that of another than what remains"
        );
        assert!(!answer.has("retry-after"));
    }
    let refused = client.get("/").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let (name, r, t) = refused.rate_limit();
    assert_eq!((&name[..], r), ("api", 0));
    assert!((1..=2).contains(&t), "{t}");
    assert_eq!(refused.number("retry-after"), t);
    let problem = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "violated-policies": ["api"],
    });
    assert_eq!(refused.problem(), problem);

    let parameters = |pairs: &[(&str, i64)]| {
        let pairs = pairs.iter().map(|&(key, value)| (key.to_owned(), value));
        pairs.collect()
    };
    let expected = vec![
        ("api".to_owned(), parameters(&[("q", 2)])),
        ("api:2/s".to_owned(), parameters(&[("q", 2), ("w", 1)])),
        ("api:3/h".to_owned(), parameters(&[("q", 3), ("w", 3_600)])),
    ];
    assert_eq!(refused.items("ratelimit-policy"), expected);

    // Another client.
    let other = Client::new(&server, "b").get("/").await;
    assert_eq!(other.status, StatusCode::OK);
}

async fn comes_back_when_it_is_told(limiter: &Limiter) {
    let server = Server::start(hello().layer(by_client(limiter))).await;
    let client = Client::new(&server, "a");
    assert_eq!(client.get("/").await.status, StatusCode::OK);
    // The second and the third may be known without asking the store.
    for _ in 0..3 {
        let asked = Instant::now();
        let refused = client.get("/").await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let after = refused.number("retry-after");
        let came = Instant::now();
        // One second and the guard.
        let true_at_most = Duration::from_millis(1_100).saturating_sub(came - asked);
        assert!(after >= 1);
        assert!(Duration::from_secs(after - 1) < true_at_most, "{after}");
    }
    let refused = client.get("/").await;
    let told = Duration::from_secs(refused.number("retry-after"));
    sleep_until(Instant::now() + told).await;
    assert_eq!(client.get("/").await.status, StatusCode::OK);
}

#[tokio::test]
async fn who_comes_back_when_it_is_told_is_served() {
    comes_back_when_it_is_told(&limiter(Quota::per_second(1))).await;
}

#[tokio::test]
async fn each_kind_of_header_can_be_switched() {
    for (rate_limit, retry_after, x_rate_limit) in [
        (true, true, true),
        (true, false, false),
        (false, true, false),
        (false, false, true),
        (false, false, false),
    ] {
        let layer = by_client(&limiter(Quota::per_hour(2)))
            .rate_limit_headers(rate_limit)
            .retry_after(retry_after)
            .x_rate_limit_headers(x_rate_limit);
        let server = Server::start(hello().layer(layer)).await;
        let client = Client::new(&server, "a");
        let granted = client.get("/").await;
        client.get("/").await;
        let refused = client.get("/").await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        for (answer, retry_after) in [(&granted, false), (&refused, retry_after)] {
            let has = FIELDS.map(|name| answer.has(name));
            let x = x_rate_limit;
            assert_eq!(has, [rate_limit, rate_limit, retry_after, x, x, x]);
        }
        if x_rate_limit {
            for (answer, remaining) in [(&granted, 1), (&refused, 0)] {
                assert_eq!(answer.number("x-ratelimit-limit"), 2);
                assert_eq!(answer.number("x-ratelimit-remaining"), remaining);
                let reset = answer.number("x-ratelimit-reset");
                assert!((3_590..=3_602).contains(&reset), "{reset}");
            }
        }
    }
}

#[tokio::test]
async fn the_headers_follow_the_quotas() {
    let limiter = limiter(Quota::per_hour(5));
    let server = Server::start(hello().layer(by_client(&limiter))).await;
    let client = Client::new(&server, "a");
    assert_eq!(client.get("/").await.rate_limit().0, "5/h");
    limiter.set_quota(Quota::per_minute(7)).expect("a quota");
    let answer = client.get("/").await;
    assert_eq!(answer.rate_limit().0, "7/m");
    assert_eq!(answer.items("ratelimit-policy")[0].1["q"], 7);
}

#[tokio::test]
async fn a_closure_answers_instead_and_the_headers_stay() {
    let layer = by_client(&limiter(Quota::per_hour(1))).refusal(|refused: &Refused| {
        let text = format!(
            "{} {} {:?} {:?}",
            refused.policy().label(),
            refused.key().expect("a key"),
            refused.error().is_limited(),
            refused.reset() >= refused.delay(),
        );
        let response = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
        response.body(Body::from(text)).expect("a response")
    });
    let server = Server::start(hello().layer(layer)).await;
    let client = Client::new(&server, "a");
    client.get("/").await;
    let refused = client.get("/").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.body, "1/h a true true");
    assert_eq!(refused.number("retry-after"), refused.rate_limit().2);
}

#[tokio::test]
async fn without_a_key_it_answers_400_and_the_reason() {
    let server = Server::start(hello().layer(by_client(&limiter(Quota::per_hour(1))))).await;
    let answer = Client::new(&server, None).get("/").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let detail = "the request has no x-client header";
    let problem = json!({ "title": "Bad Request", "status": 400, "detail": detail });
    assert_eq!(answer.problem(), problem);
    assert!(!answer.has("ratelimit") && !answer.has("retry-after"));
    assert!(answer.has("ratelimit-policy"));
}

#[tokio::test]
async fn who_is_exempt_is_answered_as_if_there_were_no_limit() {
    let layer = ThrottleLayer::new(limiter(Quota::per_hour(1)))
        .inbound(key::header("x-client").or_exempt(), FailureMode::Closed)
        .x_rate_limit_headers(true);
    let server = Server::start(hello().layer(layer)).await;
    let client = Client::new(&server, None);
    for _ in 0..5 {
        let answer = client.get("/").await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(FIELDS.iter().all(|name| !answer.has(name)));
    }
}

#[tokio::test]
async fn when_the_store_is_down_it_answers_503_and_does_not_tell_why() {
    let mut redis = RedisServer::start();
    let store = redis.store().await;
    let store = store.timeout(Duration::from_millis(500));
    let builder = Limiter::builder().quota(Quota::per_hour(5)).store(store);
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    let layer = by_client(&build(builder)).on_refused(move |refused| {
        assert!(refused.error().is_store() && refused.is_enforced());
        assert!(std::error::Error::source(refused.error()).is_some());
        count.fetch_add(1, Ordering::SeqCst);
    });
    let server = Server::start(hello().layer(layer)).await;
    let client = Client::new(&server, "a");
    assert_eq!(client.get("/").await.status, StatusCode::OK);
    redis.kill9();
    let answer = client.get("/").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    let problem = json!({ "title": "Service Unavailable", "status": 503 });
    assert_eq!(answer.problem(), problem);
    assert!(!answer.has("ratelimit") && !answer.has("retry-after"));
    assert_eq!(told.load(Ordering::SeqCst), 1);
}
