//! Redirects: those that the client follows by itself are not counted, and each hop can be.

use std::time::Duration;

use reqwest::header::LOCATION;
use reqwest::redirect::Policy;
use reqwest_middleware::ClientWithMiddleware;
use tower_throttle::{Limiter, Quota, ThrottleMiddleware};

use support::upstream::{Answer, Upstream};

const SECOND: Duration = Duration::from_secs(1);

/// Two redirects, then an answer.
async fn provider() -> Upstream {
    Upstream::answering(|number| match number {
        0 | 1 => Answer::new(307).header("Location", format!("/{number}")),
        _ => Answer::new(200),
    })
    .await
}

fn client(limiter: &Limiter, redirect: Policy) -> ClientWithMiddleware {
    let plain = reqwest::Client::builder().no_proxy().redirect(redirect);
    reqwest_middleware::ClientBuilder::new(plain.build().expect("a client"))
        .with(ThrottleMiddleware::new(limiter.clone()))
        .build()
}

fn limiter(limit: u32, window: Duration) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(limit, window));
    let builder = builder.buffer(SECOND * 3 / 10);
    builder.build().expect("a valid policy")
}

async fn spent(limiter: &Limiter, provider: &Upstream, limit: u32) -> u32 {
    let host = provider.uri();
    let host = host.trim_start_matches("http://");
    limit - limiter.peek(host).await.expect("an answer").remaining()
}

#[tokio::test]
async fn what_the_client_follows_by_itself_is_one_request() {
    let (provider, limiter) = (provider().await, limiter(9, SECOND * 60));
    let client = client(&limiter, Policy::default());
    let answer = client.get(provider.uri()).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(provider.arrivals().len(), 3);
    assert_eq!(spent(&limiter, &provider, 9).await, 1);
}

#[tokio::test]
async fn each_hop_that_the_caller_follows_is_counted_and_waits() {
    let (provider, limiter) = (provider().await, limiter(1, SECOND / 2));
    let client = client(&limiter, Policy::none());
    let mut url = reqwest::Url::parse(&provider.uri()).expect("a url");
    let answer = loop {
        let answer = client.get(url.clone()).send().await.expect("an answer");
        let Some(location) = answer.headers().get(LOCATION) else {
            break answer;
        };
        let location = location.to_str().expect("a text");
        url = answer.url().join(location).expect("a url");
    };
    assert_eq!(answer.status(), 200);
    assert_eq!(provider.arrivals().len(), 3);
    provider.history().assert_at_most(1, SECOND / 2);
}
