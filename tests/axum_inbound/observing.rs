//! A limit that is tried out: it decides and reports, and refuses nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::routing::get;
use axum::{Extension, Router};
use http::StatusCode;
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::{FailingStore, Fault};
use tower_throttle::tower::inbound::{InboundLayer, Refused};
use tower_throttle::{Departure, FailureMode, Limiter, Quota, ThrottleLayer};

use crate::axum_inbound::client::Client;
use crate::axum_inbound::server::{build, by_client, limiter};

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

/// A server with this layer, and the keys of the requests that it reports.
fn observed<K>(layer: InboundLayer<K>) -> (Router, Reports)
where
    K: tower_throttle::key::KeyExtractor<Request> + Clone + Send + Sync + 'static,
{
    let reports = Reports::default();
    let push = reports.clone();
    let layer = layer.on_refused(move |refused: &Refused| {
        let key = refused.key().map(ToString::to_string).unwrap_or_default();
        push.lock().expect("no panic").push(key);
    });
    (Router::new().route("/", get(verdict)).layer(layer), reports)
}

#[tokio::test]
async fn nothing_is_refused_and_everything_is_reported() {
    let layer = by_client(&limiter(Quota::per_hour(2)));
    let layer = layer.max_wait(Duration::from_secs(100_000));
    let (app, reports) = observed(layer.observe_only().rate_limit_headers(true));
    let client = Client::new(&app, "a");
    for number in 0..6 {
        let answer = client.get("/").await;
        assert_eq!(answer.status, StatusCode::OK);
        let departed = answer.extensions.get::<Departure>().is_some();
        let status = answer.extensions.get().map(Refused::status);
        assert_eq!([answer.body == "granted", departed], [number < 2; 2]);
        let limited = StatusCode::TOO_MANY_REQUESTS;
        assert_eq!(status, (number >= 2).then_some(limited));
        // The headers are those of a layer that refuses.
        let (_, r, t) = answer.rate_limit();
        assert_eq!(r, i64::from(number == 0));
        assert!((3_590..=3_601).contains(&t), "{t}");
        assert!(!answer.has("retry-after"));
    }
    assert_eq!(*reports.lock().expect("no panic"), ["a"; 4]);

    let answer = Client::new(&app, None).get("/").await;
    assert_eq!(answer.status, StatusCode::OK, "also without a key");
    assert_eq!(reports.lock().expect("no panic").len(), 5);
}

#[tokio::test]
async fn clients_do_not_slow_down_and_need_no_store() {
    let store = FailingStore::new(MemoryStore::new());
    store.fail_with(Fault::Unreachable);
    let builder = Limiter::builder().quota(Quota::per_hour(1)).store(store);
    for (limiter, reason) in [
        (build(builder), "store"),
        (limiter(Quota::per_hour(1)), "limit"),
    ] {
        let client = Client::new(&observed(by_client(&limiter).observe_only()).0, "a");
        client.get("/").await;
        let answer = client.get("/").await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(answer.body.contains(reason), "{}", answer.body);
        assert!(!answer.has("ratelimit") && !answer.has("ratelimit-policy"));
    }
}

#[tokio::test]
async fn exempt_requests_are_not_reported() {
    let layer = ThrottleLayer::new(limiter(Quota::per_hour(1)));
    let exempt = |_: &http::Request<Body>| None::<String>;
    let (app, reports) = observed(layer.inbound(exempt, FailureMode::Closed).observe_only());
    for _ in 0..3 {
        assert_eq!(Client::new(&app, "a").get("/").await.body, "granted");
    }
    assert!(reports.lock().expect("no panic").is_empty());
}
