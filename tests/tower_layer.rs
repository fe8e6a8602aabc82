//! Behind `ThrottleLayer` an upstream never sees more than its quota allows, whichever client is
//! inside: hyper's, reqwest's own, or no HTTP at all.
//!
//! Arrivals are judged here, and on a busy machine one request is under way much longer than
//! another. Hence a buffer that is long even where the window is short.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join, join_all};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use support::case::{Case, at_most};
use support::child;
use support::redis_server::RedisServer;
use support::upstream::Upstream;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_throttle::test_util::history::History;
use tower_throttle::tower::BoxError;
use tower_throttle::{Departure, Limiter, Quota, ThrottleLayer};

/// Sends one request to a URL and says what came back, whatever client is inside.
type Sender = BoxCloneSyncService<String, (u16, Option<Departure>), BoxError>;

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
    // The upstream is on this machine, whatever proxy the environment names.
    let client = reqwest::Client::builder().no_proxy().build();
    let service = ServiceBuilder::new()
        .layer(ThrottleLayer::new(limiter.clone()))
        .service(client.expect("a client"))
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

/// Sends so many requests, all at once.
async fn send(sender: &Sender, url: &str, requests: usize) {
    let sent = (0..requests).map(|_| sender.clone().oneshot(url.to_owned()));
    for answer in join_all(sent).await {
        let (status, departure) = answer.expect("an answer");
        assert_eq!(status, 200);
        assert!(departure.is_some(), "without a departure");
    }
}

/// Sends them through eight services, half of them over hyper's client and half over reqwest's.
async fn send_through_eight(limiter: &Limiter, url: &str, requests: usize) {
    let clients = (0..8).map(|number| {
        let over = [over_hyper, over_reqwest][number % 2];
        let (sender, url) = (over(limiter), url.to_owned());
        tokio::spawn(async move { send(&sender, &url, requests / 8).await })
    });
    for client in join_all(clients.collect::<Vec<_>>()).await {
        client.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_services_that_share_a_limiter_keep_the_bound_together() {
    let cases = [
        at_most(1, 100, 8),
        at_most(5, 1_000, 16),
        at_most(50, 100, 152),
    ];
    for case in cases {
        let upstream = Upstream::start().await;
        let limiter = case.limiter().build().expect("a valid policy");
        send_through_eight(&limiter, &upstream.uri(), case.requests).await;
        case.assert_kept(&upstream);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_limiters_on_one_redis_keep_the_bound_together() {
    let redis = RedisServer::start();
    let cases = [
        at_most(1, 1_000, 4),
        at_most(5, 100, 16),
        at_most(50, 1_000, 152),
    ];
    for case in cases {
        let upstream = Upstream::start().await;
        let url = upstream.uri();
        let (a, b) = join(case.limiter_on(&redis.url()), case.limiter_on(&redis.url())).await;
        let half = case.requests / 2;
        let (a, b) = (over_hyper(&a), over_reqwest(&b));
        join(send(&a, &url, half), send(&b, &url, half)).await;
        case.assert_kept(&upstream);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by another test as a process of its own"]
async fn replica() {
    let Some(text) = child::role() else { return };
    let variable = |name| std::env::var(name).expect("given by the parent");
    let case = Case::parse(&text);
    let limiter = case.limiter_on(&variable("REDIS")).await;
    let sender = over_hyper(&limiter);
    child::say("ready");
    assert_eq!(child::hear(), "go");
    send(&sender, &variable("UPSTREAM"), case.requests / 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_on_one_redis_keep_the_bound_together() {
    let redis = RedisServer::start();
    let cases = [
        at_most(1, 100, 6),
        at_most(5, 1_000, 18),
        at_most(50, 100, 153),
    ];
    for case in cases {
        case.assert_kept_by_three_processes("tower_layer::replica", &redis)
            .await;
    }
}

/// Neither the request nor the response has anything of HTTP; each printer has a quota of its own.
#[tokio::test(start_paused = true)]
async fn a_service_of_any_type_is_limited_by_the_key_of_a_closure() {
    struct Page {
        printer: &'static str,
        number: usize,
    }

    let printed = Arc::new(Mutex::new(Vec::new()));
    let start = Instant::now();
    let press = service_fn(|page: Page| {
        let at = start.elapsed();
        printed.lock().unwrap().push((page.printer, at));
        async move { Ok::<_, Infallible>(page.number) }
    });
    let limiter = Limiter::builder().quota(Quota::per_second(5));
    let layer = ThrottleLayer::new(limiter.build().expect("a valid policy"))
        .key(|page: &Page| page.printer.to_owned())
        .unreported();
    let service = ServiceBuilder::new().layer(layer).service(press);

    let pages = (0..40).map(|number| {
        let printer = ["attic", "cellar"][number % 2];
        service.clone().oneshot(Page { printer, number })
    });
    for (number, answer) in join_all(pages).await.into_iter().enumerate() {
        assert_eq!(answer.expect("a printed page"), number);
    }

    let printed = printed.lock().unwrap();
    for printer in ["attic", "cellar"] {
        let own = printed.iter().filter(|(at, _)| *at == printer);
        let history: History = own.map(|(_, at)| *at).collect();
        assert_eq!(history.len(), 20);
        history.assert_at_most(5, Duration::from_secs(1));
    }
    // Four windows' worth for each printer, so three waits; for both together it would be seven.
    let last = printed.iter().map(|(_, at)| *at).max();
    assert!(last < Some(Duration::from_secs(4)), "{last:?}");
}
