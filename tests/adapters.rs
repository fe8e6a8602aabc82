//! Behind each adapter for clients, an upstream never sees more than its quota allows, and no refused request. The
//! example `replicas` judges several processes.

use std::error::Error as _;

use tower_throttle::ErrorKind::{InvalidCost, NoKey, QueueFull, TooLong};

use crate::client::{ADAPTERS, Sender, by_layer, by_middleware, get};
use crate::prelude::*;

/// A busy machine may take this long for a test.
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_share_a_limiter_keep_the_bound_together() {
    // The limit, the window in milliseconds, and the requests of each of four clients: three windows' worth.
    let cases = [(1, 100, 1), (5, 1_000, 4), (50, 100, 38)];
    let all = cases.map(async |(limit, window, requests)| {
        let (upstream, window) = (Upstream::start().await, window * MS);
        // Arrivals are judged here, and on a busy machine one request is under way much longer than another.
        let builder = Limiter::builder().quota(Quota::new(limit, window));
        let limiter = build(builder.buffer(SECOND));
        let clients = [ADAPTERS; 2].into_iter().flatten().map(|adapter| {
            let (sender, url) = (adapter(&limiter), upstream.uri());
            tokio::spawn(async move {
                for answer in join_all((0..requests).map(|_| get(&sender, url.clone()))).await {
                    let answer = answer.expect("an answer");
                    assert_eq!(answer.status(), 200);
                    assert!(answer.extensions().get::<Departure>().is_some());
                }
            })
        });
        for client in join_all(clients).await {
            client.expect("no panic");
        }
        let history = upstream.history();
        assert_eq!(history.len(), 4 * requests, "not all arrived, each once");
        history.assert_at_most(limit.into(), window);
    });
    join_all(all).await;
}

fn per_hour(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_hour(limit))
}

/// The limiter's error, as a user would find it.
async fn refusal(sender: &Sender, upstream: &Upstream) -> Error {
    let error = get(sender, upstream.uri()).await.expect_err("a refusal");
    Error::find(&*error).expect("our own error").clone()
}

#[tokio::test]
async fn a_refusal_is_the_limiters_own_error_and_nothing_is_sent() {
    let upstream = Upstream::start().await;
    for adapter in ADAPTERS {
        let bound = adapter(&build(per_hour(1).max_wait(MINUTE)));
        get(&bound, upstream.uri()).await.expect("an answer");
        let error = refusal(&bound, &upstream).await;
        assert!(error.kind() == TooLong && error.source().is_none());
        let wait = error.wait().expect("a wait");
        assert!(wait > HOUR - MINUTE && wait < HOUR + MINUTE, "{wait:?}");

        let full = adapter(&build(per_hour(1).max_waiting(1)));
        get(&full, upstream.uri()).await.expect("an answer");
        let mut waiting = Box::pin(get(&full, upstream.uri()));
        assert!(poll!(&mut waiting).is_pending());
        assert_eq!(refusal(&full, &upstream).await.kind(), QueueFull);
    }
    let middleware = || ThrottleMiddleware::new(build(per_hour(10)));
    let layer = || ThrottleLayer::new(build(per_hour(10)));
    let costly = |_: &reqwest::Request| 11;
    let tenant = || key::header("x-tenant");
    for (sender, kind) in [
        (by_middleware(middleware().cost(costly)), InvalidCost),
        (by_layer(layer().cost(costly)), InvalidCost),
        (by_middleware(middleware().key(tenant())), NoKey),
        (by_layer(layer().key(tenant())), NoKey),
    ] {
        let error = refusal(&sender, &upstream).await;
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert_eq!(upstream.history().len(), 4);
}

/// Requests that are not below `/api` are exempt.
fn by_tenant(request: &reqwest::Request) -> Option<String> {
    let tenant = request.url().path().strip_prefix("/api/")?;
    Some(tenant.to_owned())
}

#[tokio::test]
async fn a_key_of_ones_own_decides_whose_quota_is_spent() {
    let upstream = Upstream::start().await;
    let limiter = || build(per_hour(1).max_wait(Duration::ZERO));
    for sender in [
        by_middleware(ThrottleMiddleware::new(limiter()).key(by_tenant)),
        by_layer(ThrottleLayer::new(limiter()).key(by_tenant)),
    ] {
        for (path, departs) in [
            ("/api/a", Some(true)),
            ("/api/b", Some(true)),
            ("/api/a", None),
            ("/health", Some(false)),
            ("/health", Some(false)),
        ] {
            let answer = get(&sender, upstream.uri() + path).await.ok();
            let departed = answer.map(|it| it.extensions().get::<Departure>().is_some());
            assert_eq!(departed, departs, "{path}");
        }
    }
    assert_eq!(upstream.history().len(), 8);
}
