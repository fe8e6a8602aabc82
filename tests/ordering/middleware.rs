//! Middleware of reqwest.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::Extensions;
use reqwest::{Client, Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::{Limiter, Quota, ThrottleMiddleware};

use super::{Arrivals, KEY, MS, SECOND, build, per_second, spent};
use support::upstream::Upstream;

/// Stands in for the network: the first so many requests fail.
struct Provider {
    arrivals: Arrivals,
    failures: usize,
}

#[async_trait::async_trait]
impl Middleware for Provider {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let status = match self.arrivals.note() {
            number if number < self.failures => 500,
            _ => 200,
        };
        let answer = http::Response::builder().status(status);
        let answer = answer.url(request.url().clone()).body("");
        Ok(answer.expect("a valid answer").into())
    }
}

/// Takes its time with some requests, as one that fetches a token.
struct Dawdles;

#[async_trait::async_trait]
impl Middleware for Dawdles {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        if request.url().path() == "/slow" {
            sleep(SECOND * 9 / 10).await;
        }
        next.run(request, extensions).await
    }
}

/// Answers by itself.
struct Cache;

#[async_trait::async_trait]
impl Middleware for Cache {
    async fn handle(&self, _: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        Ok(http::Response::new("").into())
    }
}

fn client(middleware: impl IntoIterator<Item = Arc<dyn Middleware>>) -> ClientWithMiddleware {
    let plain = ClientBuilder::new(Client::new());
    let with = |builder: ClientBuilder, next| builder.with_arc(next);
    middleware.into_iter().fold(plain, with).build()
}

fn throttle(limiter: &Limiter) -> Arc<dyn Middleware> {
    Arc::new(ThrottleMiddleware::new(limiter.clone()))
}

fn provider(arrivals: &Arrivals, failures: usize) -> Arc<dyn Middleware> {
    Arc::new(Provider {
        arrivals: arrivals.clone(),
        failures,
    })
}

fn retry() -> Arc<dyn Middleware> {
    let at_once = ExponentialBackoff::builder().retry_bounds(MS, MS * 2);
    let policy = at_once.build_with_max_retries(5);
    Arc::new(RetryTransientMiddleware::new_with_policy(policy))
}

async fn get(client: &ClientWithMiddleware, path: &str) -> u16 {
    let answer = client.get(format!("http://{KEY}{path}")).send().await;
    answer.expect("an answer").status().into()
}

#[tokio::test(start_paused = true)]
async fn outside_a_retry_takes_a_permit_for_each_attempt() {
    let (arrivals, limiter) = (Arrivals::default(), build(per_second(2)));
    let client = client([retry(), throttle(&limiter), provider(&arrivals, 3)]);
    assert_eq!(get(&client, "/").await, 200);
    assert_eq!(arrivals.len(), 4);
    arrivals.history().assert_at_most(2, SECOND);
}

#[tokio::test(start_paused = true)]
async fn inside_all_attempts_of_a_retry_share_one_permit_and_are_too_many() {
    let (arrivals, limiter) = (Arrivals::default(), build(per_second(2)));
    let client = client([throttle(&limiter), retry(), provider(&arrivals, 3)]);
    assert_eq!(get(&client, "/").await, 200);
    assert_eq!(arrivals.history().most_in_any(SECOND), 4);
    assert_eq!(spent(&limiter, 2).await, 1);
}

/// When four requests arrived, of which the first two took their time.
async fn arrivals(
    order: impl FnOnce(Arc<dyn Middleware>, Arc<dyn Middleware>) -> [Arc<dyn Middleware>; 2],
) -> Arrivals {
    let (arrivals, limiter) = (Arrivals::default(), build(per_second(2)));
    let [first, second] = order(throttle(&limiter), Arc::new(Dawdles));
    let client = client([first, second, provider(&arrivals, 0)]);
    let paths = ["/slow", "/slow", "/", "/"];
    join_all(paths.map(|path| get(&client, path))).await;
    assert_eq!(arrivals.len(), 4);
    arrivals
}

#[tokio::test(start_paused = true)]
async fn outside_what_takes_time_makes_no_departure_late() {
    let arrivals = arrivals(|throttle, dawdles| [dawdles, throttle]).await;
    arrivals.history().assert_at_most(2, SECOND);
}

#[tokio::test(start_paused = true)]
async fn inside_what_takes_time_brings_requests_closer_together() {
    let arrivals = arrivals(|throttle, dawdles| [throttle, dawdles]).await;
    assert_eq!(arrivals.history().most_in_any(SECOND), 4);
}

#[tokio::test(start_paused = true)]
async fn outside_what_answers_by_itself_spends_nothing() {
    let (arrivals, limiter) = (Arrivals::default(), build(per_second(2)));
    let cached = client([Arc::new(Cache), throttle(&limiter), provider(&arrivals, 0)]);
    assert_eq!(get(&cached, "/").await, 200);
    assert_eq!((spent(&limiter, 2).await, arrivals.len()), (0, 0));
    let cached = client([throttle(&limiter), Arc::new(Cache), provider(&arrivals, 0)]);
    assert_eq!(get(&cached, "/").await, 200);
    assert_eq!((spent(&limiter, 2).await, arrivals.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_around_a_request_includes_the_wait() {
    let (arrivals, limiter) = (Arrivals::default(), build(per_second(1)));
    let client = client([throttle(&limiter), provider(&arrivals, 0)]);
    get(&client, "/").await;
    let start = Instant::now();
    let late = timeout(SECOND / 2, get(&client, "/")).await;
    assert!(late.is_err() && start.elapsed() >= SECOND / 2);
    get(&client, "/").await;
    assert!(start.elapsed() < SECOND * 3 / 2, "{:?}", start.elapsed());
    assert_eq!(arrivals.len(), 2);
}

/// By the real clock, and so with room for a busy machine: a request takes milliseconds.
#[tokio::test]
async fn a_timeout_of_the_client_begins_when_the_request_departs() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let upstream = Upstream::start().await;
    let plain = Client::builder().no_proxy().timeout(TIMEOUT).build();
    let limiter = build(Limiter::builder().quota(Quota::new(1, TIMEOUT * 5 / 4)));
    let client = ClientBuilder::new(plain.expect("a client"))
        .with(ThrottleMiddleware::new(limiter))
        .build();
    for _ in 0..2 {
        let answer = client.get(upstream.uri()).send().await;
        assert_eq!(answer.expect("an answer in time").status(), 200);
    }
    assert!(upstream.history().span() > Some(TIMEOUT));
}
