//! Places that are lost while a handler runs or a body streams, and full queues.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use tokio::time::{sleep, timeout};
use tower::timeout::Timeout;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

use super::inbound::{FailureMode, InboundLayer, Refused};
use super::{BoxError, ThrottleLayer};
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
    let mut service = layer.without_feedback().layer(service_fn(|_: Request<()>| {
        let _in_progress = work.clone();
        async move {
            let _in_progress = _in_progress;
            pending::<Result<Response<Body>, Infallible>>().await
        }
    }));
    let seen = async || (Arc::strong_count(&work), state(&limiter).await);
    let mut call = pin!(service.call(Request::new(())));
    timeout(SECOND, &mut call).await.unwrap_err();
    assert_eq!(seen().await, (2, (1, Some(9))));
    let (answer, ()) = tokio::join!(call.as_mut(), lose_places(&store));
    assert!(is_lost(&*answer.unwrap_err()));
    // The future is kept, but neither the work nor the place.
    assert_eq!(seen().await, (1, (0, Some(9))));
}

/// The place is lost while the handler runs, or while its body streams.
#[tokio::test(start_paused = true)]
async fn work_whose_place_is_lost_is_dropped_unless_its_layer_only_observes() {
    for (runs, observes) in [(15, false), (15, true), (0, false), (0, true)] {
        let (store, limiter) = aborting();
        let mut layer = inbound(&limiter);
        if observes {
            layer = layer.observe_only().charge_when(|_| false);
        }
        let work = Arc::new(());
        let service = layer.layer(service_fn(|_: Request<()>| {
            let work = work.clone();
            async move {
                sleep(runs * SECOND).await;
                let parts = stream::unfold((runs, work), async |(nth, work)| {
                    sleep(SECOND).await;
                    let part = Ok::<_, Infallible>("part");
                    (nth < 15).then_some((part, (nth + 1, work)))
                });
                Ok::<_, Infallible>(Response::new(Body::from_stream(parts)))
            }
        }));
        let answer = async {
            let answer = service.oneshot(Request::new(())).await.unwrap();
            let (head, body) = answer.into_parts();
            (head, body.collect().await)
        };
        let after_loss = async {
            lose_places(&store).await;
            (Arc::strong_count(&work), state(&limiter).await.1)
        };
        let ((head, body), after_loss) = tokio::join!(answer, after_loss);
        // The request had departed. The response of an observed one says that it does not count.
        let left_at_last = if observes { 10 } else { 9 };
        let left = if runs == 0 { left_at_last } else { 9 };
        assert_eq!(after_loss, (1 + usize::from(observes), Some(left)));
        let is_dropped = runs > 0 && !observes;
        let refused = head.extensions.get::<Refused>();
        assert_eq!(refused.is_some_and(|it| is_lost(it.error())), is_dropped);
        assert_eq!(head.status.as_u16(), if is_dropped { 503 } else { 200 });
        let is_cut = body.is_err_and(|error| is_lost(&*error));
        assert_eq!(is_cut, runs == 0 && !observes);
        assert_eq!(state(&limiter).await, (0, Some(left_at_last)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_not_reported_in_units_that_the_request_did_not_spend() {
    let limiter = Limiter::builder().name("api").quota(Quota::per_second(10));
    let limiter = limiter.build().unwrap();
    let changed = limiter.clone();
    let service = inbound(&limiter).layer(service_fn(move |_: Request<()>| {
        let tokens = Quota::per_minute(99).unit("tokens").default_cost(1);
        changed.set_quota(tokens).unwrap();
        async { Ok::<_, Infallible>(Response::new(Body::empty())) }
    }));
    let limits = async || {
        let answer = service.clone().oneshot(Request::new(())).await.unwrap();
        answer.headers().get("ratelimit").cloned()
    };
    assert_eq!(limits().await, None);
    assert_eq!(limits().await.unwrap(), r#""api";r=98"#);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_answered_by_what_may_have_filled_it() {
    let (places, rate) = (Quota::concurrent(1), Quota::per_hour(9));
    assert_eq!(statuses(&[places]).await, [200, 503, 503, 503]);
    assert_eq!(statuses(&[places, rate]).await, [200, 429, 503, 429]);
}

/// The statuses of requests under these quotas. The second one comes before the first answer of the store, and finds a full
/// queue, as does the last one.
async fn statuses(quotas: &[Quota]) -> [u16; 4] {
    let store = FailingStore::new(MemoryStore::new()).latency(SECOND / 10);
    let limiter = Limiter::builder().store(store).max_waiting(1);
    let quotas = quotas.iter().copied();
    let limiter = quotas.fold(limiter, |it, quota| it.quota(quota));
    let limiter = limiter.build().unwrap();
    let layer = inbound(&limiter).max_wait(SECOND);
    let service = layer.layer(service_fn(|_: Request<()>| async {
        sleep(10 * SECOND).await;
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let call = async |after: u32| {
        sleep(after * SECOND / 4).await;
        let answer = service.clone().oneshot(Request::new(())).await.unwrap();
        let is_full = answer.status() != 200;
        assert!(!is_full || !answer.headers()["ratelimit-policy"].is_empty());
        let headroom = answer.headers().get("ratelimit");
        let has_time = headroom.is_some_and(|it| it.to_str().unwrap().contains("t="));
        let is_promised = is_full && has_time;
        assert!(!is_promised, "it is not known when places are free");
        answer.status().as_u16()
    };
    let (first, second, third, last) = tokio::join!(call(0), call(0), call(2), call(4));
    [first, second, third, last]
}

#[tokio::test(start_paused = true)]
async fn a_spawned_task_may_call_services_with_boxed_errors() {
    let limiter = Limiter::builder().quota(Quota::per_second(1));
    let layer = ThrottleLayer::new(limiter.build().unwrap()).key(constant("a"));
    let inner = service_fn(|_: Request<()>| async { Ok::<_, BoxError>(Response::new(())) });
    let inner = Timeout::new(inner, SECOND);
    let mut service = layer.cost(|_: &Request<()>| 1).layer(inner);
    let task = tokio::spawn(async move {
        let service = service.ready().await.unwrap();
        service.call(Request::new(())).await.unwrap().status()
    });
    assert_eq!(task.await.unwrap(), 200);
}
