//! A login that is limited by its failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::get;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::{Response, StatusCode};
use tokio::sync::Semaphore;
use tower_throttle::tower::inbound::InboundLayer;
use tower_throttle::{Algorithm, Limiter, LimiterBuilder, Quota};

use crate::axum_inbound::client::Client;
use crate::axum_inbound::server::{Server, build, by_client};

const FAILURES: u32 = 3;

/// A login whose answers wait until it is open.
struct Login {
    open: Semaphore,
    attempts: AtomicUsize,
}

/// The password is the word "right".
async fn login(State(login): State<Arc<Login>>, Path(password): Path<String>) -> StatusCode {
    login.attempts.fetch_add(1, Ordering::SeqCst);
    let _open = login.open.acquire().await.expect("never closed");
    if password == "right" {
        StatusCode::OK
    } else {
        StatusCode::UNAUTHORIZED
    }
}

fn failed(response: &Response<Body>) -> bool {
    response.status() == StatusCode::UNAUTHORIZED
}

async fn serve<F>(
    limiter: &Limiter,
    permits: usize,
    layered: impl Fn(InboundLayer<tower_throttle::key::Header>) -> F,
) -> (Server, Arc<Login>)
where
    F: tower::Layer<axum::routing::Route> + Clone + Send + Sync + 'static,
    F::Service: tower::Service<axum::extract::Request, Error = std::convert::Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    <F::Service as tower::Service<axum::extract::Request>>::Response:
        axum::response::IntoResponse + 'static,
    <F::Service as tower::Service<axum::extract::Request>>::Future: Send + 'static,
{
    let state = Arc::new(Login {
        open: Semaphore::new(permits),
        attempts: AtomicUsize::new(0),
    });
    let app = Router::new()
        .route("/login/{password}", get(login))
        .with_state(state.clone())
        .layer(layered(by_client(limiter)));
    (Server::start(app).await, state)
}

fn per_hour() -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_hour(FAILURES))
}

async fn only_failures_count(limiter: &Limiter) {
    let (server, _) = serve(limiter, 100, |layer| layer.charge_when(failed)).await;
    let client = Client::new(&server, "a");
    for _ in 0..10 {
        assert_eq!(client.get("/login/right").await.status, StatusCode::OK);
    }
    for _ in 0..FAILURES {
        let answer = client.get("/login/wrong").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        if answer.rate_limit().1 > 0 {
            assert_eq!(client.get("/login/right").await.status, StatusCode::OK);
        }
    }
    for path in ["/login/wrong", "/login/right"] {
        let answer = client.get(path).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test]
async fn only_failed_logins_count() {
    only_failures_count(&build(per_hour())).await;
    let buckets = Algorithm::SlidingBuckets { buckets: 10 };
    let quota = Quota::per_hour(FAILURES).algorithm(buckets);
    only_failures_count(&build(Limiter::builder().quota(quota))).await;
}

#[tokio::test]
async fn attempts_at_the_same_time_are_no_more_than_the_limit() {
    let limiter = build(per_hour());
    let (server, login) = serve(&limiter, 0, |layer| layer.charge_when(failed)).await;
    let client = Client::new(&server, "a");
    let mut attempts: FuturesUnordered<_> = (0..10).map(|_| client.get("/login/wrong")).collect();
    let failures = FAILURES as usize;
    for _ in failures..10 {
        let answer = attempts.next().await.expect("an attempt");
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(login.attempts.load(Ordering::SeqCst), failures);
    login.open.add_permits(failures);
    while let Some(answer) = attempts.next().await {
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(login.attempts.load(Ordering::SeqCst), failures);
    let answer = client.get("/login/right").await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn an_attempt_whose_client_hangs_up_counts() {
    let limiter = build(per_hour());
    let (server, login) = serve(&limiter, 0, |layer| layer.charge_when(failed)).await;
    for attempt in 1..=FAILURES as usize {
        // A client of its own, whose connection goes with it.
        let client = Client::new(&server, "a");
        let attempting = tokio::spawn(async move { client.get("/login/wrong").await });
        while login.attempts.load(Ordering::SeqCst) < attempt {
            tokio::task::yield_now().await;
        }
        attempting.abort();
        let _ = attempting.await;
    }
    let answer = Client::new(&server, "a").get("/login/right").await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
}
