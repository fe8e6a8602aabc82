//! Requests that wait for a while before they are served, or are refused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use futures_util::future::select_all;
use http::StatusCode;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Quota};

use crate::axum_inbound::client::Client;
use crate::axum_inbound::server::{Server, build, by_client, limiter};
use support::errors::PATIENCE;

/// A handler that remembers when it was called.
fn recording() -> (Router, Arc<Mutex<History>>) {
    let history = Arc::new(Mutex::new(History::new()));
    let (origin, record) = (Instant::now(), history.clone());
    let handler = move || {
        record.lock().expect("no panic").push(origin.elapsed());
        async { "hello" }
    };
    (Router::new().route("/", get(handler)), history)
}

#[tokio::test]
async fn a_queue_that_is_full_is_a_limit() {
    let builder = Limiter::builder().quota(Quota::per_hour(1)).max_waiting(2);
    let limiter = build(builder);
    let (app, _) = recording();
    let hours = Duration::from_secs(5 * 3_600);
    let server = Server::start(app.layer(by_client(&limiter).max_wait(hours))).await;
    let client = Client::new(&server, "a");
    assert_eq!(client.get("/").await.status, StatusCode::OK);
    // Two of them wait.
    let requests = (0..3).map(|_| Box::pin(client.get("/")));
    let (refused, _, waiting) = select_all(requests).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    // Behind the departure and the requests that wait. The estimate may be early.
    let after = refused.number("retry-after");
    assert!((3_600 - 60..3 * 3_600 + 5).contains(&after), "{after}");
    assert_eq!(refused.problem()["violated-policies"][0], "1/h");
    drop(waiting);
}

#[tokio::test]
async fn a_client_that_hangs_up_while_it_waits_spends_nothing() {
    let limiter = limiter(Quota::new(1, Duration::from_secs(100)));
    let (app, history) = recording();
    let layer = by_client(&limiter).max_wait(Duration::from_secs(1_000));
    let server = Server::start(app.layer(layer)).await;
    assert_eq!(
        Client::new(&server, "a").get("/").await.status,
        StatusCode::OK
    );

    let mut stream = TcpStream::connect(server.address).await.expect("a server");
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-client: a\r\n\r\n";
    stream.write_all(request).await.expect("a request");
    wait_until(async || limiter.queues() == 1).await;
    drop(stream);
    wait_until(async || limiter.queues() == 0).await;
    let delay = delay(&limiter).await;
    assert!(delay < Duration::from_secs(101), "{delay:?}");
    assert_eq!(history.lock().expect("no panic").len(), 1);
}

/// How long the next request would have to wait.
async fn delay(limiter: &Limiter) -> Duration {
    limiter.peek("a").await.expect("an answer").delay()
}

async fn wait_until(holds: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "it does not come about");
        sleep(Duration::from_millis(2)).await;
    }
}
