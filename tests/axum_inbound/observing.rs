//! A limit that is tried out: it decides and reports, and refuses nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use axum::{Extension, Router};
use http::StatusCode;
use tower_throttle::tower::inbound::Refused;
use tower_throttle::{Departure, FailureMode, Limiter, Quota, ThrottleLayer};

use crate::axum_inbound::client::Client;
use crate::axum_inbound::server::{Server, build, by_client, limiter};
use support::errors::bounded;
use support::redis_server::RedisServer;

/// Tells whether the request that reached it would have been refused.
async fn verdict(refused: Option<Extension<Refused>>) -> String {
    match refused {
        Some(Extension(refused)) => {
            assert!(!refused.is_enforced());
            refused.error().to_string()
        }
        None => "granted".to_owned(),
    }
}

type Reports = Arc<Mutex<Vec<String>>>;

fn reports() -> (Reports, impl Fn(&Refused) + Send + Sync + 'static) {
    let reports = Reports::default();
    let push = reports.clone();
    let on_refused = move |refused: &Refused| {
        let key = refused.key().map(ToString::to_string).unwrap_or_default();
        push.lock().expect("no panic").push(key);
    };
    (reports, on_refused)
}

/// Writes what the response's extensions hold where the client can see it.
async fn show(request: Request, next: Next) -> axum::response::Response {
    let mut response = next.run(request).await;
    let extensions = response.extensions();
    let shown = (
        extensions.get::<Departure>().is_some(),
        extensions.get::<Refused>().map(Refused::status),
    );
    let shown = match shown {
        (true, None) => "departed".to_owned(),
        (false, Some(status)) => status.as_u16().to_string(),
        other => format!("{other:?}"),
    };
    let shown = shown.parse().expect("ASCII");
    response.headers_mut().insert("x-extensions", shown);
    response
}

fn app() -> Router {
    Router::new().route("/", get(verdict))
}

#[tokio::test]
async fn nothing_is_refused_and_everything_is_reported() {
    let (reports, on_refused) = reports();
    let layer = by_client(&limiter(Quota::per_hour(2)))
        .max_wait(Duration::from_secs(100_000))
        .observe_only()
        .rate_limit_headers(true)
        .on_refused(on_refused);
    let app = app().layer(layer).layer(from_fn(show));
    let server = Server::start(app).await;
    let client = Client::new(&server, "a");
    for number in 0..6 {
        let answer = client.get("/").await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.body == "granted", number < 2, "{}", answer.body);
        let extensions = if number < 2 { "departed" } else { "429" };
        assert_eq!(answer.headers["x-extensions"], extensions);
        // The headers are those of a layer that refuses.
        let (_, r, t) = answer.rate_limit();
        assert_eq!(r, i64::from(number == 0));
        assert!((3_590..=3_601).contains(&t), "{t}");
        assert!(!answer.has("retry-after"));
    }
    assert_eq!(*reports.lock().expect("no panic"), ["a"; 4]);

    // Also without a key.
    let answer = Client::new(&server, None).get("/").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["x-extensions"], "400");
    assert_eq!(reports.lock().expect("no panic").len(), 5);
}

#[tokio::test]
async fn it_lets_requests_pass_without_a_store() {
    let mut redis = RedisServer::start();
    let store = redis.store().await;
    let store = store.timeout(Duration::from_millis(500));
    let limiter = build(Limiter::builder().quota(Quota::per_hour(2)).store(store));
    let server = Server::start(app().layer(by_client(&limiter).observe_only())).await;
    redis.kill9();
    let answer = bounded(Client::new(&server, "a").get("/")).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.body.contains("store"), "{}", answer.body);
    assert!(!answer.has("ratelimit"));
}

#[tokio::test]
async fn exempt_requests_are_not_reported() {
    let (reports, on_refused) = reports();
    let layer = ThrottleLayer::new(limiter(Quota::per_hour(1)));
    let layer = layer
        .inbound(|_: &Request<Body>| None::<String>, FailureMode::Closed)
        .observe_only()
        .on_refused(on_refused);
    let server = Server::start(app().layer(layer)).await;
    let client = Client::new(&server, "a");
    for _ in 0..3 {
        assert_eq!(client.get("/").await.body, "granted");
    }
    assert!(reports.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn clients_do_not_slow_down_for_a_limit_that_is_tried_out() {
    let layer = by_client(&limiter(Quota::per_hour(1))).observe_only();
    let server = Server::start(app().layer(layer)).await;
    let client = Client::new(&server, "a");
    for _ in 0..3 {
        let answer = client.get("/").await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(!answer.has("ratelimit") && !answer.has("ratelimit-policy"));
    }
}
