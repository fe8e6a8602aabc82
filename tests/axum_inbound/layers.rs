//! Limits on all routes, on one, and on both.

use axum::Router;
use axum::body::Body;
use axum::extract::MatchedPath;
use axum::routing::{get, post};
use http::{Request, StatusCode};
use tower_throttle::{FailureMode, Limiter, Quota, ThrottleLayer};

use crate::axum_inbound::client::Client;
use crate::axum_inbound::server::{Server, build, by_client, limiter};

/// The route that the request matches.
fn matched_path(request: &Request<Body>) -> Option<String> {
    let path = request.extensions().get::<MatchedPath>()?;
    Some(path.as_str().to_owned())
}

async fn hello() -> &'static str {
    "hello"
}

#[tokio::test]
async fn each_route_has_a_quota_of_its_own_and_what_matches_none_spends_nothing() {
    let layer =
        ThrottleLayer::new(limiter(Quota::per_hour(2))).inbound(matched_path, FailureMode::Closed);
    let app = Router::new()
        .route("/users/{id}", get(hello))
        .route("/orders", get(hello))
        .route_layer(layer);
    let server = Server::start(app).await;
    let client = Client::new(&server, None);
    for (path, expected) in [
        ("/users/1", 200),
        ("/users/2", 200),
        ("/users/3", 429),
        ("/orders", 200),
        ("/nowhere", 404),
        ("/orders", 200),
        ("/orders", 429),
        ("/nowhere", 404),
    ] {
        let answer = client.get(path).await;
        assert_eq!(answer.status, expected, "{path}");
        assert_eq!(answer.has("ratelimit"), expected != 404);
    }
}

#[tokio::test]
async fn one_method_of_one_route_is_limited() {
    let limited = get(hello).layer(by_client(&limiter(Quota::per_hour(1))));
    let app = Router::new()
        .route("/limited", limited.merge(post(hello)))
        .route("/free", get(hello));
    let server = Server::start(app).await;
    let client = Client::new(&server, "a");
    for (path, expected) in [
        ("/limited", StatusCode::OK),
        ("/limited", StatusCode::TOO_MANY_REQUESTS),
        ("/free", StatusCode::OK),
    ] {
        let answer = client.get(path).await;
        assert_eq!(answer.status, expected, "{path}");
        assert_eq!(answer.has("ratelimit"), path == "/limited");
    }
}

#[tokio::test]
async fn of_two_layers_each_tells_of_its_own_limit() {
    let named = |name, quota| build(Limiter::builder().name(name).quota(quota));
    let all = named("all", Quota::per_hour(4));
    let one = named("one", Quota::per_minute(2));
    let app = Router::new()
        .route("/free", get(hello))
        .route(
            "/limited",
            get(hello).layer(by_client(&one).x_rate_limit_headers(true)),
        )
        .layer(by_client(&all).x_rate_limit_headers(true));
    let server = Server::start(app).await;
    let client = Client::new(&server, "a");
    let remaining = |answer: &crate::axum_inbound::client::Answer| -> Vec<_> {
        let items = answer.items("ratelimit").into_iter();
        items.map(|(name, item)| (name, item["r"])).collect()
    };
    let pairs = |pairs: &[(&str, i64)]| -> Vec<_> {
        let pairs = pairs.iter();
        pairs.map(|&(name, r)| (name.to_owned(), r)).collect()
    };

    let first = client.get("/limited").await;
    assert_eq!(remaining(&first), pairs(&[("one", 1), ("all", 3)]));
    let policies = first.items("ratelimit-policy");
    assert_eq!(policies.len(), 2);
    assert_eq!(first.number("x-ratelimit-limit"), 2);
    client.get("/limited").await;

    // The one inside refuses, and the one outside has let it in, so it counts there.
    let refused = client.get("/limited").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(remaining(&refused), pairs(&[("one", 0), ("all", 1)]));
    assert_eq!(refused.problem()["violated-policies"][0], "one");
    assert!(refused.number("retry-after") <= 61);
    assert_eq!(refused.number("x-ratelimit-remaining"), 0);
    assert!(refused.number("x-ratelimit-reset") <= 61);

    assert_eq!(remaining(&client.get("/free").await), pairs(&[("all", 0)]));
    // The one outside refuses, and the one inside is not asked.
    let refused = client.get("/limited").await;
    assert_eq!(remaining(&refused), pairs(&[("all", 0)]));
    assert_eq!(refused.problem()["violated-policies"][0], "all");
    assert!(refused.number("retry-after") > 3_500);
}
