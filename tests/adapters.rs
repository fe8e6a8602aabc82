//! Behind each adapter an upstream never sees more than its quota allows, whichever client is inside. The example
//! `replicas` judges several processes.
//!
//! Arrivals are judged here, and on a busy machine one request is under way much longer than
//! another. Hence a buffer that is long even where the window is short.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use support::spend::build;
use support::upstream::Upstream;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_throttle::tower::BoxError;
use tower_throttle::{
    Departure, Limiter, LimiterBuilder, Quota, ThrottleLayer, ThrottleMiddleware,
};

use crate::client;

/// Sends one request to a URL and returns the status and the departure, whatever client is inside.
type Sender = BoxCloneSyncService<String, (u16, Option<Departure>), BoxError>;

const ADAPTERS: [fn(&Limiter) -> Sender; 3] = [over_hyper, over_reqwest, as_middleware];

/// The limit, the window in milliseconds, and the requests that make three windows' worth.
const CASES: [(u32, u64, usize); 3] = [(1, 100, 9), (5, 1_000, 18), (50, 100, 153)];

const SECOND: Duration = Duration::from_secs(1);

fn over_hyper(limiter: &Limiter) -> Sender {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let service = ServiceBuilder::new()
        .layer(ThrottleLayer::new(limiter.clone()))
        .service(client)
        .map_request(|url: String| {
            let request = http::Request::get(url).body(Empty::new());
            request.expect("a valid request")
        })
        .map_response(|answer| {
            let departure = answer.extensions().get().copied();
            (answer.status().as_u16(), departure)
        });
    BoxCloneSyncService::new(service)
}

fn over_reqwest(limiter: &Limiter) -> Sender {
    let service = ServiceBuilder::new()
        .layer(ThrottleLayer::new(limiter.clone()))
        .service(client::plain())
        .map_request(|url: String| {
            let url = url.parse().expect("a valid URL");
            reqwest::Request::new(http::Method::GET, url)
        })
        .map_response(|answer| {
            let departure = answer.extensions().get().copied();
            (answer.status().as_u16(), departure)
        });
    BoxCloneSyncService::new(service)
}

fn as_middleware(limiter: &Limiter) -> Sender {
    let client = client::throttled(ThrottleMiddleware::new(limiter.clone()));
    BoxCloneSyncService::new(service_fn(move |url: String| {
        let request = client.get(url);
        async move {
            let answer = request.send().await?;
            let departure = answer.extensions().get().copied();
            Ok((answer.status().as_u16(), departure))
        }
    }))
}

fn at_most(limit: u32, window: u64) -> LimiterBuilder {
    let quota = Quota::new(limit, Duration::from_millis(window));
    Limiter::builder().quota(quota).buffer(SECOND * 3 / 10)
}

/// Sends so many requests, all at once.
async fn send(sender: Sender, url: String, requests: usize) {
    let sent = (0..requests).map(|_| sender.clone().oneshot(url.clone()));
    for answer in join_all(sent).await {
        let (status, departure) = answer.expect("an answer");
        assert_eq!(status, 200);
        assert!(departure.is_some(), "without a departure");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_share_a_limiter_keep_the_bound_together() {
    for (limit, window, requests) in CASES {
        let upstream = Upstream::start().await;
        let limiter = build(at_most(limit, window));
        let clients = (0..9).map(|number| {
            let sender = ADAPTERS[number % 3](&limiter);
            tokio::spawn(send(sender, upstream.uri(), requests / 9))
        });
        for client in join_all(clients).await {
            client.expect("no panic");
        }
        let history = upstream.history();
        assert_eq!(history.len(), requests, "not all arrived, each once");
        history.assert_at_most(limit.into(), Duration::from_millis(window));
    }
}
