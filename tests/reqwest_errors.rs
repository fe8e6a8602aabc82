//! Requests that `ThrottleMiddleware` refuses, or that are dropped.

use std::error::Error as _;
use std::time::Duration;

use futures_util::poll;
use reqwest_middleware::ClientWithMiddleware;
use support::spend::build;
use support::upstream::Upstream;
use tokio::time::{sleep, timeout};
use tower_throttle::{
    Departure, Error, ErrorKind, Limiter, LimiterBuilder, Quota, ThrottleMiddleware, key,
};

use crate::client::throttled;

const HOUR: Duration = Duration::from_secs(3_600);

/// A busy machine may take this long for a test.
const MINUTE: Duration = Duration::from_secs(60);

fn per_hour(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_hour(limit))
}

fn client(builder: LimiterBuilder) -> ClientWithMiddleware {
    throttled(ThrottleMiddleware::new(build(builder)))
}

async fn send(client: &ClientWithMiddleware, upstream: &Upstream) -> reqwest::Response {
    let answer = client.get(upstream.uri()).send().await;
    answer.expect("an answer")
}

/// The limiter's error, got as a user would get it.
async fn refusal(client: &ClientWithMiddleware, upstream: &Upstream) -> Error {
    let answer = client.get(upstream.uri()).send().await;
    let error = answer.expect_err("a refusal");
    Error::find(&error).expect("our own error").clone()
}

#[tokio::test]
async fn a_refusal_is_the_limiters_own_error_and_nothing_is_sent() {
    let upstream = Upstream::start().await;
    let bound = client(per_hour(1).max_wait(MINUTE));
    send(&bound, &upstream).await;
    let error = refusal(&bound, &upstream).await;
    assert!(error.kind() == ErrorKind::TooLong && error.source().is_none());
    let wait = error.wait().expect("a wait");
    assert!(wait > HOUR - MINUTE && wait < HOUR + MINUTE, "{wait:?}");

    let full = client(per_hour(1).max_waiting(1));
    send(&full, &upstream).await;
    let mut waiting = Box::pin(full.get(upstream.uri()).send());
    assert!(poll!(&mut waiting).is_pending());
    assert_eq!(refusal(&full, &upstream).await.kind(), ErrorKind::QueueFull);

    let middleware = || ThrottleMiddleware::new(build(per_hour(10)));
    let costing = |cost| throttled(middleware().cost(move |_: &reqwest::Request| cost));
    let tenants = throttled(middleware().key(key::header("x-tenant")));
    for (client, kind) in [
        (costing(0), ErrorKind::InvalidCost),
        (costing(11), ErrorKind::InvalidCost),
        (tenants, ErrorKind::NoKey),
    ] {
        let error = refusal(&client, &upstream).await;
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert_eq!(upstream.arrivals().len(), 2);
}

#[tokio::test]
async fn a_key_of_ones_own_decides_whose_quota_is_spent() {
    /// What is not below `/api` is exempt.
    fn by_tenant(request: &reqwest::Request) -> Option<String> {
        let tenant = request.url().path().strip_prefix("/api/")?;
        Some(tenant.to_owned())
    }
    let upstream = Upstream::start().await;
    let limiter = build(per_hour(1).max_wait(Duration::ZERO));
    let client = throttled(ThrottleMiddleware::new(limiter).key(by_tenant));
    for (path, departs) in [
        ("/api/a", Some(true)),
        ("/api/b", Some(true)),
        ("/api/a", None),
        ("/health", Some(false)),
        ("/health", Some(false)),
    ] {
        let answer = client.get(upstream.uri() + path).send().await.ok();
        let departed = answer.map(|it| it.extensions().get::<Departure>().is_some());
        assert_eq!(departed, departs, "{path}");
    }
    assert_eq!(upstream.arrivals().len(), 4);
}

#[tokio::test]
async fn a_request_that_is_dropped_while_it_waits_spends_nothing() {
    let upstream = Upstream::start().await;
    let limiter = build(per_hour(1));
    let key = key::constant("upstream");
    let client = throttled(ThrottleMiddleware::new(limiter.clone()).key(key));
    send(&client, &upstream).await;
    for patience in [0, 1, 30] {
        let patience = Duration::from_millis(patience);
        let dropped = timeout(patience, client.get(upstream.uri()).send()).await;
        assert!(dropped.is_err(), "departed within the hour");
    }
    // Returned departures have arrived when no queue is left.
    let settled = async {
        while limiter.queues() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(MINUTE, settled).await.expect("no queue is left");
    let snapshot = limiter.peek("upstream").await.expect("an answer");
    assert!(snapshot.delay() < HOUR + MINUTE, "{snapshot:?}");
    assert_eq!(upstream.arrivals().len(), 1);
}
