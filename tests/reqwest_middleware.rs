//! Behind `ThrottleMiddleware` an upstream never sees more than its quota allows, whether one
//! client sends, or many that share a limiter, or replicas that share a Redis.
//!
//! Arrivals are judged here, and on a busy machine one request is under way much longer than
//! another. Hence a buffer that is long even where the window is short.

use futures_util::future::{join, join_all};
use reqwest_middleware::ClientWithMiddleware;
use support::case::{Case, at_most};
use support::child;
use support::redis_server::RedisServer;
use support::upstream::Upstream;
use tower_throttle::{Limiter, ThrottleMiddleware};

/// A client as a user would make it.
fn client(limiter: &Limiter) -> ClientWithMiddleware {
    // The upstream is on this machine, whatever proxy the environment names.
    let plain = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    reqwest_middleware::ClientBuilder::new(plain)
        .with(ThrottleMiddleware::new(limiter.clone()))
        .build()
}

/// Sends so many requests through a client of its own, all at once.
async fn send(limiter: &Limiter, url: &str, requests: usize) {
    let client = client(limiter);
    let answers = join_all((0..requests).map(|_| client.get(url).send())).await;
    for answer in answers {
        assert_eq!(answer.expect("an answer").status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_client_keeps_the_bound_with_all_requests_at_once() {
    for case in [
        at_most(1, 100, 4),
        at_most(5, 1_000, 16),
        at_most(50, 100, 151),
    ] {
        let upstream = Upstream::start().await;
        let limiter = case.limiter().build().expect("a valid policy");
        send(&limiter, &upstream.uri(), case.requests).await;
        case.assert_kept(&upstream);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_clients_that_share_a_limiter_keep_the_bound_together() {
    for case in [
        at_most(1, 100, 8),
        at_most(5, 1_000, 16),
        at_most(50, 100, 152),
    ] {
        let upstream = Upstream::start().await;
        let limiter = case.limiter().build().expect("a valid policy");
        let url = upstream.uri();
        let clients = (0..8).map(|_| {
            let (limiter, url) = (limiter.clone(), url.clone());
            tokio::spawn(async move { send(&limiter, &url, case.requests / 8).await })
        });
        for client in join_all(clients).await {
            client.expect("no panic");
        }
        case.assert_kept(&upstream);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_limiters_on_one_redis_keep_the_bound_together() {
    let redis = RedisServer::start();
    for case in [
        at_most(1, 1_000, 4),
        at_most(5, 100, 16),
        at_most(50, 1_000, 152),
    ] {
        let upstream = Upstream::start().await;
        let url = upstream.uri();
        let (a, b) = join(case.limiter_on(&redis.url()), case.limiter_on(&redis.url())).await;
        let half = case.requests / 2;
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
    child::say("ready");
    assert_eq!(child::hear(), "go");
    send(&limiter, &variable("UPSTREAM"), case.requests / 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_on_one_redis_keep_the_bound_together() {
    let redis = RedisServer::start();
    for case in [
        at_most(1, 100, 6),
        at_most(5, 1_000, 18),
        at_most(50, 100, 153),
    ] {
        case.assert_kept_by_three_processes("reqwest_middleware::replica", &redis)
            .await;
    }
}
