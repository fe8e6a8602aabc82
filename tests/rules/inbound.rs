//! A server that limits its clients by rules.

use std::net::IpAddr;

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::{HeaderMap, Request, StatusCode};
use tower::ServiceExt as _;
use tower_throttle::tower::inbound::Refused;
use tower_throttle::{FailureMode, Limiter, ThrottleLayer};

use crate::rules::toml;

fn app() -> Router {
    let rules = toml(
        r#"
        [[rules]]
        host = "internal.example"
        exempt = true

        [[rules]]
        name = "uploads"
        method = ["POST", "PUT"]
        path = "/files/{*path}"
        quota = ["5/h", "100/d"]
        cost = 2
        key = "client_ip"
        trusted_proxies = "10.0.0.0/8"

        [[rules]]
        name = "tenants"
        header = { x-tenant = true }
        quota = "1/h"
        key = [{ header = "x-tenant" }, "method"]

        [[rules]]
        name = "others"
        quota = "3/h"
        key = "client_ip"
        "#,
    );
    let limiter = Limiter::builder().rules(rules.expect("rules")).build();
    let limiter = limiter.expect("a limiter");
    let key = limiter.by_rules();
    Router::new()
        .route("/{*path}", any(|| async { "done" }))
        .layer(ThrottleLayer::new(limiter).inbound(key, FailureMode::Closed))
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    refused_by: Option<String>,
}

/// As a client behind a proxy.
async fn send(app: &Router, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request = Request::builder().method(method).uri(path);
    let request = request.extension(IpAddr::from([10, 0, 0, 1]));
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    let request = request.body(Body::empty()).expect("a request");
    let answer = app.clone().oneshot(request).await.expect("no failure");
    Answer {
        status: answer.status(),
        headers: answer.headers().clone(),
        refused_by: answer
            .extensions()
            .get()
            .map(|it: &Refused| it.policy().label().to_owned()),
    }
}

#[tokio::test]
async fn each_request_is_answered_by_its_rule() {
    let app = app();
    let from = |client: &'static str| [("host", "api.example"), ("x-forwarded-for", client)];
    for _ in 0..2 {
        let answer = send(&app, "PUT", "/files/a", &from("203.0.113.7")).await;
        assert_eq!(answer.status, 200);
        let policy = &answer.headers["ratelimit-policy"];
        assert!(
            policy
                .to_str()
                .expect("text")
                .starts_with("\"uploads\";q=5"),
            "{policy:?}"
        );
    }
    let answer = send(&app, "PUT", "/files/b", &from("203.0.113.7")).await;
    assert_eq!(answer.status, 429, "each costs two");
    assert_eq!(answer.refused_by.as_deref(), Some("uploads"));
    assert!(answer.headers.contains_key("retry-after"));
    let answer = send(&app, "PUT", "/files/b", &from("203.0.113.8")).await;
    assert_eq!(answer.status, 200, "another client");
    for _ in 0..3 {
        let answer = send(&app, "GET", "/files/a", &from("203.0.113.7")).await;
        assert_eq!(answer.status, 200, "which is no upload");
        assert!(
            answer.headers["ratelimit"]
                .to_str()
                .expect("text")
                .starts_with("\"others\"")
        );
    }
    let answer = send(&app, "GET", "/files/a", &from("203.0.113.7")).await;
    assert_eq!(
        (answer.status, answer.refused_by.as_deref()),
        (StatusCode::TOO_MANY_REQUESTS, Some("others"))
    );
}

#[tokio::test]
async fn an_exempt_request_is_answered_as_if_there_were_no_layer() {
    let app = app();
    for _ in 0..10 {
        let answer = send(&app, "GET", "/a", &[("host", "Internal.Example:8080")]).await;
        assert_eq!(answer.status, 200);
        assert!(!answer.headers.contains_key("ratelimit"));
    }
}
