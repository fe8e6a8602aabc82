//! Middleware of reqwest.

use std::sync::Arc;

use http::Extensions;
use reqwest::{Client, Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tower_throttle::ThrottleMiddleware;

use super::{Arrivals, KEY, left, limited};
use support::upstream::Upstream;

use crate::prelude::*;

/// What is around the throttle, or behind it.
enum Step {
    /// Stands in for the network: the first so many requests fail.
    Provider(Arrivals, usize),
    /// Takes its time with some requests, as one that fetches a token.
    Dawdles,
    Cache,
}

#[async_trait::async_trait]
impl Middleware for Step {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let status = match self {
            Self::Provider(arrivals, failures) if arrivals.note() < *failures => 500,
            Self::Provider(..) | Self::Cache => 200,
            Self::Dawdles => {
                if request.url().path() == "/slow" {
                    sleep(SECOND * 9 / 10).await;
                }
                return next.run(request, extensions).await;
            }
        };
        let answer = http::Response::builder().status(status);
        let answer = answer.url(request.url().clone()).body("");
        Ok(answer.expect("a valid answer").into())
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
    Arc::new(Step::Provider(arrivals.clone(), failures))
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
async fn outside_a_retry_takes_a_permit_for_each_attempt_and_inside_all_share_one() {
    let (arrivals, limiter) = limited(2);
    let client = client([retry(), throttle(&limiter), provider(&arrivals, 3)]);
    assert_eq!(get(&client, "/").await, 200);
    arrivals.assert_each_took_a_permit();

    let (arrivals, limiter) = limited(2);
    let client = self::client([throttle(&limiter), retry(), provider(&arrivals, 3)]);
    assert_eq!(get(&client, "/").await, 200);
    arrivals.assert_shared_a_permit(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn outside_what_takes_time_makes_no_departure_late_and_inside_brings_them_closer_together() {
    for (is_inside, most) in [(false, 2), (true, 4)] {
        let (arrivals, limiter) = limited(2);
        let mut middleware = [
            Arc::new(Step::Dawdles),
            throttle(&limiter),
            provider(&arrivals, 0),
        ];
        if is_inside {
            middleware.swap(0, 1);
        }
        let client = client(middleware);
        let paths = ["/slow", "/slow", "/", "/"];
        join_all(paths.map(|path| get(&client, path))).await;
        assert_eq!(arrivals.history().len(), 4);
        assert_eq!(arrivals.history().most_in_any(SECOND), most);
    }
}

#[tokio::test(start_paused = true)]
async fn outside_what_answers_by_itself_spends_nothing() {
    let (_, limiter) = limited(2);
    let cached = client([Arc::new(Step::Cache), throttle(&limiter)]);
    assert_eq!(get(&cached, "/").await, 200);
    assert_eq!(left(&limiter).await, 2);
    let cached = client([throttle(&limiter), Arc::new(Step::Cache)]);
    assert_eq!(get(&cached, "/").await, 200);
    assert_eq!(left(&limiter).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_around_a_request_includes_the_wait() {
    let (arrivals, limiter) = limited(1);
    let client = client([throttle(&limiter), provider(&arrivals, 0)]);
    get(&client, "/").await;
    let start = Instant::now();
    let late = timeout(SECOND / 2, get(&client, "/")).await;
    assert!(late.is_err() && start.elapsed() >= SECOND / 2);
    get(&client, "/").await;
    assert!(start.elapsed() < SECOND * 3 / 2, "{:?}", start.elapsed());
    assert_eq!(arrivals.history().len(), 2);
}

/// By the real clock, and so with room for a busy machine: a request takes milliseconds.
#[tokio::test]
async fn a_timeout_of_the_client_begins_when_the_request_departs() {
    const TIMEOUT: Duration = Duration::from_secs(2);
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
