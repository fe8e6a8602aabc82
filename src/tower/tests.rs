//! Places that are lost while a handler runs or a body streams, and full queues.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::time::{sleep, timeout};
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

use super::ThrottleLayer;
use super::inbound::{FailureMode, InboundLayer, Refused};
use crate::acquire::{Error, ErrorKind};
use crate::key::{Key, constant};
use crate::limiter::Limiter;
use crate::policy::Lost;
use crate::quota::Quota;
use crate::store::MemoryStore;
use crate::test_util::{FailingStore, Fault};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(5);

fn aborting() -> (FailingStore, Limiter) {
    let store = FailingStore::new(MemoryStore::new());
    let limiter = Limiter::builder()
        .store(store.clone())
        .quota(Quota::concurrent(2).lease(LEASE))
        .quota(Quota::per_hour(10))
        .lost(Lost::Abort)
        .build();
    (store, limiter.unwrap())
}

fn inbound(limiter: &Limiter) -> InboundLayer<Key> {
    ThrottleLayer::new(limiter.clone()).inbound(constant("a"), FailureMode::Open)
}

/// The store is out until the leases have ended, and a while after that.
async fn lose_places(store: &FailingStore) {
    sleep(SECOND).await;
    store.fail_with(Fault::Unreachable);
    sleep(2 * LEASE).await;
    store.recover();
    sleep(2 * SECOND).await;
}

/// The places that are held, and the other units that are left.
async fn state(limiter: &Limiter) -> (u32, Option<u32>) {
    // A release is sent after a millisecond.
    sleep(SECOND / 10).await;
    let snapshot = limiter.peek("a").await.unwrap();
    let held = snapshot.places().unwrap().held;
    (held, snapshot.remaining_of("requests"))
}

fn is_lost(error: &(dyn std::error::Error + 'static)) -> bool {
    Error::find(error).map(Error::kind) == Some(ErrorKind::LostPlace)
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_place_is_lost_is_dropped_and_counts() {
    let (store, limiter) = aborting();
    let work = Arc::new(());
    let layer = ThrottleLayer::new(limiter.clone()).key(constant("a"));
    let mut service = layer.without_feedback().layer(service_fn(|()| {
        let _in_progress = work.clone();
        async move {
            let _in_progress = _in_progress;
            pending::<Result<Response<Body>, Infallible>>().await
        }
    }));
    let mut call = pin!(service.call(()));
    timeout(SECOND, &mut call).await.unwrap_err();
    assert_eq!(
        (Arc::strong_count(&work), state(&limiter).await),
        (2, (1, Some(9)))
    );

    let (answer, ()) = tokio::join!(call.as_mut(), lose_places(&store));
    assert!(is_lost(&*answer.unwrap_err()));
    // The future is kept, but neither the work nor the place.
    assert_eq!(
        (Arc::strong_count(&work), state(&limiter).await),
        (1, (0, Some(9)))
    );
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_place_is_lost_is_dropped_unless_its_layer_only_observes() {
    for observes in [false, true] {
        let (store, limiter) = aborting();
        let mut layer = inbound(&limiter);
        if observes {
            layer = layer.observe_only();
        }
        let work = Arc::new(());
        let service = layer.layer(service_fn(|_: Request<()>| {
            let work = work.clone();
            async move {
                sleep(3 * LEASE).await;
                drop(work);
                Ok::<_, Infallible>(Response::new(Body::from("done")))
            }
        }));
        let call = service.oneshot(Request::new(()));
        let after_loss = async {
            lose_places(&store).await;
            (Arc::strong_count(&work), state(&limiter).await)
        };
        let (answer, after_loss) = tokio::join!(call, after_loss);
        let answer = answer.unwrap();
        let refused = answer.extensions().get::<Refused>().unwrap();
        assert!(is_lost(refused.error()));
        assert_eq!(refused.is_enforced(), !observes);
        // The request had departed.
        assert_eq!(after_loss, (1 + usize::from(observes), (0, Some(9))));
        let expected = match observes {
            false => StatusCode::SERVICE_UNAVAILABLE,
            true => StatusCode::OK,
        };
        assert_eq!(answer.status(), expected);
        answer.into_body().collect().await.unwrap();
        assert_eq!(state(&limiter).await, (0, Some(9)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_place_is_lost_fails_unless_its_layer_only_observes() {
    for observes in [false, true] {
        let (store, limiter) = aborting();
        let mut layer = inbound(&limiter);
        if observes {
            layer = layer.observe_only();
        }
        let service = layer.layer(service_fn(async |_: Request<()>| {
            let parts = stream::unfold(0, async |nth| {
                sleep(SECOND).await;
                (nth < 15).then(|| (Ok::<_, Infallible>("part"), nth + 1))
            });
            Ok::<_, Infallible>(Response::new(Body::from_stream(parts)))
        }));
        let answer = service.oneshot(Request::new(())).await.unwrap();
        let (body, ()) = tokio::join!(answer.into_body().collect(), lose_places(&store));
        match body {
            Ok(body) => assert!(observes && body.to_bytes().len() == 60),
            Err(error) => assert!(!observes && is_lost(&*error)),
        }
        assert_eq!(state(&limiter).await, (0, Some(9)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_answered_with_429_whatever_its_requests_wait_for() {
    let store = FailingStore::new(MemoryStore::new()).latency(SECOND / 10);
    let limiter = Limiter::builder().store(store).max_waiting(1);
    let limiter = limiter.quota(Quota::concurrent(1)).build().unwrap();
    let layer = inbound(&limiter).max_wait(SECOND);
    let service = layer.layer(service_fn(async |_: Request<()>| {
        sleep(10 * SECOND).await;
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let call = async || {
        let answer = service.clone().oneshot(Request::new(())).await.unwrap();
        let is_busy = answer.extensions().get().map(Refused::is_busy);
        (answer.status().as_u16(), is_busy)
    };
    let later = async |after: Duration| {
        sleep(after).await;
        call().await
    };
    let answers = tokio::join!(
        call(),
        // The store has not answered yet.
        call(),
        later(SECOND / 2),
        // The store has answered that no place is left.
        later(SECOND),
    );
    let full = (429, Some(false));
    assert_eq!(answers, ((200, None), full, (503, Some(true)), full));
}
