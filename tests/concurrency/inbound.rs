//! A server whose clients may have so many requests in progress.

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use tower_throttle::tower::inbound::InboundLayer;
use tower_throttle::{FailureMode, Limiter, ThrottleLayer, key};

use super::streams::streamed;
use super::{held, wait_for_held};
use crate::axum_inbound::server::Server;
use crate::client;
use support::errors::bounded;
use support::spend::{build, under};

fn layer(limiter: &Limiter) -> InboundLayer<key::Header> {
    ThrottleLayer::new(limiter.clone()).inbound(key::header("x-client"), FailureMode::Closed)
}

async fn serve(layer: InboundLayer<key::Header>) -> Server {
    let app = Router::new().route("/{millis}", get(streamed));
    Server::start(app.route("/empty", get(async || ())).layer(layer)).await
}

async fn get_from(server: &Server, path: &str) -> reqwest::Response {
    let url = format!("http://{}/{path}", server.address);
    let request = client::plain().get(url).header("x-client", "a");
    bounded(request.send()).await.expect("a response")
}

#[tokio::test]
async fn a_handler_holds_the_place_of_its_client_until_the_body_ends() {
    let limiter = build(under(&["1 concurrent", "600/m"]).name("api"));
    let server = serve(layer(&limiter)).await;
    let streamed = get_from(&server, "400").await;
    assert_eq!(streamed.status(), StatusCode::OK);
    assert_eq!(held(&limiter, "a").await, 1);

    let refused = get_from(&server, "0").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let header = |name: &str| refused.headers()[name].to_str().expect("ASCII").to_owned();
    let after: u64 = header("retry-after").parse().expect("seconds");
    assert!(after >= 1, "{after}");
    let (policy, limits) = (header("ratelimit-policy"), header("ratelimit"));
    println!("{policy}; {limits}; retry-after: {after}");
    assert!(policy.contains(r#"qu="concurrent-requests""#), "{policy}");
    assert!(limits.contains("r=0"), "{limits}");

    bounded(streamed.bytes()).await.expect("a whole body");
    wait_for_held(&limiter, "a", 0).await;
    let empty = get_from(&server, "empty").await;
    assert_eq!(empty.status(), StatusCode::OK);
    wait_for_held(&limiter, "a", 0).await;
    // The refused request has spent nothing.
    let snapshot = limiter.peek("a").await.expect("a snapshot");
    assert_eq!(snapshot.remaining_of("requests"), Some(598));
}

#[tokio::test]
async fn a_client_that_hangs_up_releases_its_place() {
    let limiter = build(under(&["1 concurrent"]));
    let server = serve(layer(&limiter).busy_status(StatusCode::TOO_MANY_REQUESTS)).await;
    let mut streamed = get_from(&server, "60000").await;
    bounded(streamed.chunk()).await.expect("a part");
    let refused = get_from(&server, "0").await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(streamed);
    wait_for_held(&limiter, "a", 0).await;
    assert_eq!(get_from(&server, "0").await.status(), StatusCode::OK);
}
