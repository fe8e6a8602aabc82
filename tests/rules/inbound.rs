//! A server that limits its clients by rules.

use std::convert::Infallible;
use std::net::IpAddr;

use http::{Request, Response};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_throttle::tower::inbound::Refused;
use tower_throttle::{FailureMode, Limiter, ThrottleLayer};

use crate::rules::toml;

const RULES: &str = r#"
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
    name = "others"
    quota = "3/h"
    key = "client_ip"
"#;

#[tokio::test]
async fn each_request_is_answered_by_its_rule() {
    let limiter = Limiter::builder()
        .rules(toml(RULES).expect("rules"))
        .build();
    let limiter = limiter.expect("a limiter");
    let key = limiter.by_rules();
    let service = ThrottleLayer::new(limiter)
        .inbound(key, FailureMode::Closed)
        .layer(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
    let (api, internal) = ("api.example", "Internal.Example:8080");
    // Each upload costs two. An exempt request is answered as if there were no layer.
    for (method, host, client, status, policy) in [
        ("PUT", api, "203.0.113.7", 200, Some("\"uploads\"")),
        ("PUT", api, "203.0.113.7", 200, Some("\"uploads\"")),
        ("PUT", api, "203.0.113.7", 429, Some("\"uploads\"")),
        ("PUT", api, "203.0.113.8", 200, Some("\"uploads\"")),
        ("GET", api, "203.0.113.7", 200, Some("\"others\"")),
        ("PUT", internal, "203.0.113.7", 200, None),
    ] {
        // As a client behind a proxy.
        let request = Request::builder().method(method).uri("/files/a");
        let request = request
            .header("host", host)
            .header("x-forwarded-for", client);
        let request = request.extension(IpAddr::from([10, 0, 0, 1]));
        let answer = service
            .clone()
            .oneshot(request.body(()).expect("a request"));
        let answer = answer.await.expect("infallible");
        let row = format!("{method} {host} {client}: {answer:?}");
        assert_eq!(answer.status(), status, "{row}");
        let header = answer.headers().get("ratelimit");
        let header = header.map(|it| it.to_str().expect("text"));
        assert_eq!(header.and_then(|it| it.split(';').next()), policy, "{row}");
        let refused = answer.extensions().get::<Refused>();
        let refused = refused.map(|it| it.policy().label().to_owned());
        let expected = (status == 429).then_some("uploads");
        assert_eq!(refused.as_deref(), expected, "{row}");
    }
}
