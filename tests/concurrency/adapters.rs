//! The adapters hold the place of a request until the body of its response has ended.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use http::Version;
use tokio::time::sleep;
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_throttle::tower::BoxError;
use tower_throttle::{Departure, Limiter, ThrottleLayer, ThrottleMiddleware, key};

use super::streams::Streams;
use super::{held, wait_for_held};
use crate::client;
use support::errors::bounded;
use support::spend::{build, under};

type Sender = BoxCloneSyncService<String, reqwest::Response, BoxError>;

fn limiter() -> Limiter {
    build(under(&["9 concurrent", "99/h"]))
}

fn by_middleware(limiter: &Limiter) -> Sender {
    let throttle = ThrottleMiddleware::new(limiter.clone()).key(key::constant("a"));
    let client = client::throttled(throttle);
    BoxCloneSyncService::new(service_fn(move |url: String| {
        let sent = client.get(url).send();
        async move { sent.await.map_err(BoxError::from) }
    }))
}

fn by_layer(limiter: &Limiter) -> Sender {
    let layer = ThrottleLayer::new(limiter.clone()).key(key::constant("a"));
    let service = layer.layer(client::plain()).map_request(|url: String| {
        let url = url.parse().expect("a valid URL");
        reqwest::Request::new(http::Method::GET, url)
    });
    BoxCloneSyncService::new(service)
}

#[tokio::test]
async fn a_reqwest_response_holds_the_place_until_its_body_ends_fails_or_is_dropped() {
    let upstream = Streams::start().await;
    for by in [by_middleware, by_layer] {
        let limiter = limiter();
        let sender = by(&limiter);
        let get = async |path: &str| {
            let sent = sender.clone().oneshot(format!("{}{path}", upstream.base));
            bounded(sent).await.expect("a response")
        };
        // It is otherwise as ever. A redirect that the client follows is not counted.
        let moved = get("/moved").await;
        let snapshot = limiter.peek("a").await.expect("a look");
        assert_eq!(snapshot.remaining_of("requests"), Some(98));
        assert_eq!(held(&limiter, "a").await, 1);
        assert_eq!(moved.url().as_str(), format!("{}/sized", upstream.base));
        assert_eq!(
            (moved.status().as_u16(), &moved.headers()["x-name"]),
            (200, &"value".parse().expect("a value"))
        );
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
        let error = sender.clone().oneshot("http://127.0.0.1:1/".into());
        bounded(error).await.expect_err("there is no server");
        assert_eq!(held(&limiter, "a").await, 0);

        // A request that is cancelled before its response.
        let pending = tokio::spawn(sender.clone().oneshot(format!("{}/silent", upstream.base)));
        wait_for_held(&limiter, "a", 1).await;
        pending.abort();
        wait_for_held(&limiter, "a", 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_of_another_protocol_holds_the_place_until_its_response() {
    let limiter = limiter();
    let layer = ThrottleLayer::new(limiter.clone())
        .key(key::constant("a"))
        .unreported();
    let service = layer.layer(service_fn(async |millis: u64| {
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
    let panics = layer.layer(service_fn(async |()| -> Result<(), Infallible> {
        std::panic::resume_unwind(Box::new("in the service"))
    }));
    tokio::spawn(panics.oneshot(())).await.expect_err("a panic");
    assert_eq!(held(&limiter, "a").await, 0);
}
