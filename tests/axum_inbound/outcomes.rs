//! A login that is limited by its failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::get;
use futures_util::StreamExt as _;
use futures_util::poll;
use futures_util::stream::FuturesUnordered;
use http::{Response, StatusCode};
use tokio::sync::Semaphore;
use tower_throttle::{Algorithm, Quota};

use crate::axum_inbound::client::Client;
use crate::axum_inbound::server::{by_client, limiter};

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
    match &*password {
        "right" => StatusCode::OK,
        _ => StatusCode::UNAUTHORIZED,
    }
}

/// A client of a login that answers so many attempts at once, and of which only failures count.
fn client(quota: Quota, permits: usize) -> (Client, Arc<Login>) {
    let state = Arc::new(Login {
        open: Semaphore::new(permits),
        attempts: AtomicUsize::new(0),
    });
    let failed = |response: &Response<Body>| response.status() == StatusCode::UNAUTHORIZED;
    let app = Router::new()
        .route("/login/{password}", get(login))
        .with_state(state.clone())
        .layer(by_client(&limiter(quota)).charge_when(failed));
    (Client::new(&app, "a"), state)
}

#[tokio::test]
async fn only_failed_logins_count() {
    let quota = Quota::per_hour(FAILURES);
    let buckets = Algorithm::SlidingBuckets { buckets: 10 };
    for quota in [quota, quota.algorithm(buckets)] {
        let (client, _) = client(quota, 100);
        let status = async |path| client.get(path).await.status;
        for _ in 0..FAILURES {
            for _ in 0..4 {
                assert_eq!(status("/login/right").await, StatusCode::OK);
            }
            assert_eq!(status("/login/wrong").await, StatusCode::UNAUTHORIZED);
        }
        assert_eq!(status("/login/right").await, StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test]
async fn attempts_at_the_same_time_are_no_more_than_the_limit() {
    let (client, login) = client(Quota::per_hour(FAILURES), 0);
    let mut attempts: FuturesUnordered<_> = (0..10).map(|_| client.get("/login/wrong")).collect();
    let failures = FAILURES as usize;
    for _ in failures..10 {
        let answer = attempts.next().await.expect("an attempt");
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    }
    login.open.add_permits(failures);
    while let Some(answer) = attempts.next().await {
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(login.attempts.load(Ordering::SeqCst), failures);
}

#[tokio::test]
async fn an_attempt_whose_client_hangs_up_counts() {
    let (client, login) = client(Quota::per_hour(FAILURES), 0);
    for attempt in 1..=FAILURES as usize {
        let mut attempting = Box::pin(client.get("/login/wrong"));
        assert!(poll!(&mut attempting).is_pending());
        assert_eq!(login.attempts.load(Ordering::SeqCst), attempt);
    }
    let answer = client.get("/login/right").await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
}
