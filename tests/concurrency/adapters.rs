//! The adapters hold the place of a request until the body of its response has ended.

use std::net::SocketAddr;

use axum::routing::get;
use http::Version;
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;

use super::streams::{self, body, body_until, streamed};
use super::{held, wait_for_held};
use crate::axum_inbound::server::{self, by_client};
use crate::client::{self, OF_ONE_KEY};
use crate::prelude::*;

fn limiter() -> Limiter {
    build(under(&["9 concurrent", "99/h"]))
}

#[tokio::test]
async fn a_reqwest_response_holds_the_place_until_its_body_ends_fails_or_is_dropped() {
    let upstream = streams::start().await;
    for adapter in OF_ONE_KEY {
        let limiter = limiter();
        let sender = adapter(&limiter);
        let get = async |path: &str| {
            let sent = client::get(&sender, format!("{}{path}", upstream));
            bounded(sent).await.expect("a response")
        };
        let moved = get("/moved").await;
        let snapshot = limiter.peek("a").await.expect("a look");
        assert_eq!(snapshot.remaining_of("requests"), Some(98));
        assert_eq!(held(&limiter, "a").await, 1);
        assert_eq!(moved.url().as_str(), format!("{}/sized", upstream));
        assert_eq!(moved.status(), StatusCode::OK);
        assert_eq!(moved.headers()["x-name"], "value");
        assert_eq!(moved.version(), Version::HTTP_11);
        assert_eq!(moved.content_length(), Some(5));
        assert!(moved.extensions().get::<Departure>().is_some());
        assert_eq!(moved.text().await.expect("a body"), "sized");
        assert_eq!(held(&limiter, "a").await, 0);

        let mut ends = get("/300").await;
        assert_eq!(held(&limiter, "a").await, 1);
        ends.chunk().await.expect("a part").expect("a part");
        assert_eq!(held(&limiter, "a").await, 1);
        while ends.chunk().await.expect("a part").is_some() {}
        assert_eq!(held(&limiter, "a").await, 0, "{ends:?}");

        let mut dropped = get("/60000").await;
        dropped.chunk().await.expect("a part").expect("a part");
        let other = get("/60000").await;
        assert_eq!(held(&limiter, "a").await, 2);
        drop((dropped, other));
        assert_eq!(held(&limiter, "a").await, 0);

        let mut fails = get("/fails").await;
        assert_eq!(held(&limiter, "a").await, 1);
        while let Ok(part) = fails.chunk().await {
            part.expect("it does not end");
        }
        assert_eq!(held(&limiter, "a").await, 0, "{fails:?}");

        let empty = get("/empty").await;
        assert_eq!(held(&limiter, "a").await, 0, "{empty:?}");
        let error = client::get(&sender, "http://127.0.0.1:1/".into());
        bounded(error).await.expect_err("there is no server");
        assert_eq!(held(&limiter, "a").await, 0);

        let (sender, silent) = (sender.clone(), format!("{}/silent", upstream));
        let pending = tokio::spawn(async move { client::get(&sender, silent).await });
        wait_for_held(&limiter, "a", 1).await;
        pending.abort();
        wait_for_held(&limiter, "a", 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_of_another_protocol_holds_the_place_until_its_response() {
    let limiter = limiter();
    let layer = ThrottleLayer::new(limiter.clone()).key(key::constant("a"));
    let layer = layer.unreported();
    let service = layer.layer(service_fn(|millis: u64| async move {
        sleep(Duration::from_millis(millis)).await;
        if millis > 100 {
            Err(io::Error::other("it fails"))
        } else {
            Ok("an answer")
        }
    }));
    for millis in [100, 200] {
        let answer = tokio::spawn(service.clone().oneshot(millis));
        sleep(Duration::from_millis(50)).await;
        assert_eq!(held(&limiter, "a").await, 1);
        let answer = answer.await.expect("no panic");
        assert_eq!(held(&limiter, "a").await, 0);
        assert_eq!(answer.is_ok(), millis == 100);
    }
    async fn panic(_: ()) -> Result<(), Infallible> {
        std::panic::resume_unwind(Box::new("in the service"))
    }
    let panics = layer.layer(service_fn(panic));
    tokio::spawn(panics.oneshot(())).await.expect_err("a panic");
    assert_eq!(held(&limiter, "a").await, 0);
}

/// Serves `/MILLIS`, `/empty`, and `/until`, which streams until the semaphore has a permit.
async fn serve(layer: InboundLayer<key::Header>, ends: &Arc<Semaphore>) -> SocketAddr {
    let ends = ends.clone();
    let until = async move || body_until(ends.clone());
    let app = Router::new().route("/{millis}", get(streamed));
    let app = app.route("/until", get(until));
    server::serve(app.route("/empty", get(async || ())).layer(layer)).await
}

async fn get_from(server: SocketAddr, path: &str) -> reqwest::Response {
    let url = format!("http://{server}/{path}");
    let request = client::plain().get(url).header("x-client", "a");
    bounded(request.send()).await.expect("a response")
}

#[tokio::test]
async fn a_handler_holds_the_place_of_its_client_until_the_body_ends_or_the_client_hangs_up() {
    let limiter = build(under(&["1 concurrent", "600/m"]).name("api"));
    let ends = Arc::new(Semaphore::new(0));
    let server = serve(by_client(&limiter), &ends).await;
    let streamed = get_from(server, "until").await;
    assert_eq!(streamed.status(), StatusCode::OK);
    assert_eq!(held(&limiter, "a").await, 1);

    let refused = get_from(server, "0").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let header = |name: &str| refused.headers()[name].to_str().expect("ASCII").to_owned();
    let after: u64 = header("retry-after").parse().expect("seconds");
    assert!(after >= 1, "{after}");
    let (policy, limits) = (header("ratelimit-policy"), header("ratelimit"));
    assert!(policy.contains(r#"qu="concurrent-requests""#), "{policy}");
    assert!(limits.contains("r=0"), "{limits}");

    ends.add_permits(1);
    bounded(streamed.bytes()).await.expect("a whole body");
    wait_for_held(&limiter, "a", 0).await;
    let layer = by_client(&limiter).busy_status(StatusCode::TOO_MANY_REQUESTS);
    let busy = serve(layer, &ends).await;
    let mut streamed = get_from(busy, "60000").await;
    bounded(streamed.chunk()).await.expect("a part");
    let refused = get_from(busy, "0").await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(streamed);
    wait_for_held(&limiter, "a", 0).await;
    let empty = get_from(server, "empty").await;
    assert_eq!(empty.status(), StatusCode::OK);
    wait_for_held(&limiter, "a", 0).await;
    // The refused requests have spent nothing.
    let snapshot = limiter.peek("a").await.expect("a snapshot");
    assert_eq!(snapshot.remaining_of("requests"), Some(597));
}

fn is_lost(error: &(dyn std::error::Error + 'static)) -> bool {
    Error::find(error).map(Error::kind) == Some(ErrorKind::LostPlace)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_is_dropped_or_goes_on_when_its_lease_ends() {
    for lost in [Lost::Abort, Lost::Continue] {
        let (mut server, upstream) = (RedisServer::start(), streams::start().await);
        let builder = under(&["9 concurrent lease=2s"]).lost(lost);
        let limiter = build(builder.store(server.store().await.timeout(SECOND / 2)));
        let throttle = ThrottleMiddleware::new(limiter.clone()).key(key::constant("a"));
        let client = client::throttled(throttle);
        let response = client.get(format!("{}/4000", upstream)).send();
        let response = bounded(response).await.expect("a response");
        let layer = ThrottleLayer::new(limiter.clone()).key(key::constant("a"));
        let service = layer.layer(service_fn(|_: http::Request<()>| async move {
            Ok::<_, std::io::Error>(http::Response::new(body(4 * SECOND)))
        }));
        let streamed = service.oneshot(http::Request::new(())).await;
        let streamed = streamed.expect("a response").into_body();
        let place = limiter.acquire("a").await.expect("a permit").hold();
        let work = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.run("a", || sleep(4 * SECOND)).await }
        });
        sleep(SECOND / 5).await;
        assert!(!place.is_lost());
        server.kill9();

        let (body, streamed) = (response.bytes(), streamed.collect());
        let ends = async { (body.await, streamed.await, work.await.expect("no panic")) };
        let (body, streamed, work) = bounded(ends).await;
        assert!(place.is_lost());
        if lost == Lost::Continue {
            body.expect("a whole body");
            streamed.expect("a whole body");
            work.expect("the work goes on");
            continue;
        }
        assert!(is_lost(&body.expect_err("its place is lost")));
        assert!(is_lost(&*streamed.expect_err("its place is lost")));
        let error = work.expect_err("its place is lost");
        assert_eq!(error.kind(), ErrorKind::LostPlace, "{error}");
        let error = place.run(sleep(Duration::from_secs(1))).await;
        assert_eq!(error.expect_err("it is lost").kind(), ErrorKind::LostPlace);
    }
}
