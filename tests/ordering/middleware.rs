//! Middleware of reqwest.

use http::Extensions;
use reqwest::{Client, Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;

use super::{Arrivals, KEY, limited};

use crate::prelude::*;

/// Stands in for the network: the first so many requests fail.
struct Provider(Arrivals, usize);

#[async_trait::async_trait]
impl Middleware for Provider {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let status = if self.0.note() < self.1 { 500 } else { 200 };
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
    Arc::new(Provider(arrivals.clone(), failures))
}

fn retry() -> Arc<dyn Middleware> {
    let at_once = ExponentialBackoff::builder().retry_bounds(MS, MS * 2);
    let policy = at_once.build_with_max_retries(5);
    Arc::new(RetryTransientMiddleware::new_with_policy(policy))
}

async fn get(client: &ClientWithMiddleware) -> u16 {
    let answer = client.get(format!("http://{KEY}/")).send().await;
    answer.expect("an answer").status().into()
}

#[tokio::test(start_paused = true)]
async fn outside_a_retry_takes_a_permit_for_each_attempt_and_inside_all_share_one() {
    let (arrivals, limiter) = limited(2);
    let client = client([retry(), throttle(&limiter), provider(&arrivals, 3)]);
    assert_eq!(get(&client).await, 200);
    arrivals.assert_each_took_a_permit();

    let (arrivals, limiter) = limited(2);
    let client = self::client([throttle(&limiter), retry(), provider(&arrivals, 3)]);
    assert_eq!(get(&client).await, 200);
    arrivals.assert_shared_a_permit(&limiter).await;
}

/// By the real clock, and so with room for a busy machine: a request takes milliseconds.
#[tokio::test]
async fn a_timeout_of_the_client_begins_when_the_request_departs() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let upstream = Upstream::start().await;
    let plain = Client::builder().no_proxy().timeout(TIMEOUT).build();
    let limiter = build(Limiter::builder().quota(Quota::new(1, TIMEOUT * 5 / 4)));
    let client = ClientBuilder::new(plain.expect("a client"));
    let client = client.with(ThrottleMiddleware::new(limiter)).build();
    for _ in 0..2 {
        let answer = client.get(upstream.uri()).send().await;
        assert_eq!(answer.expect("an answer in time").status(), 200);
    }
    assert!(upstream.history().span() > Some(TIMEOUT));
}
