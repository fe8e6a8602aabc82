//! Layers of tower.

use tower::BoxError;
use tower::retry::{Policy, RetryLayer};
use tower::util::BoxCloneSyncService;
use tower_http::follow_redirect::FollowRedirectLayer;

use super::{Arrivals, KEY, limited};
use crate::prelude::*;

type Boxed = BoxCloneSyncService<Request<String>, Response<()>, BoxError>;

fn within<L, B>(layer: L, service: Boxed) -> Boxed
where
    L: Layer<Boxed>,
    L::Service: Service<Request<String>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let service = layer.layer(service).map_err(Into::into);
    BoxCloneSyncService::new(service.map_response(|answer| answer.map(drop)))
}

fn throttled(limiter: &Limiter, service: Boxed) -> Boxed {
    within(ThrottleLayer::new(limiter.clone()), service)
}

/// Answers the first three requests with this status, and the others with 200.
fn upstream(arrivals: &Arrivals, first: u16) -> Boxed {
    let arrivals = arrivals.clone();
    BoxCloneSyncService::new(service_fn(move |_| {
        let status = if arrivals.note() < 3 { first } else { 200 };
        let answer = Response::builder().status(status);
        let answer = answer.header("location", "/next").body(());
        ready(Ok(answer.expect("a valid answer")))
    }))
}

/// Tries again at once, as long as the answer is a failure of the server.
#[derive(Debug, Clone)]
struct AtOnce;

impl Policy<Request<String>, Response<()>, BoxError> for AtOnce {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<String>,
        result: &mut Result<Response<()>, BoxError>,
    ) -> Option<Ready<()>> {
        let is_failure = |answer: &Response<()>| answer.status().is_server_error();
        result.as_ref().is_ok_and(is_failure).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<String>) -> Option<Request<String>> {
        Some(request.clone())
    }
}

async fn answer(service: Boxed) -> Result<Response<()>, BoxError> {
    let request = Request::get(format!("http://{KEY}/")).body(String::new());
    service.oneshot(request.expect("a valid request")).await
}

/// Inside, they are too many.
#[tokio::test(start_paused = true)]
async fn outside_a_retry_or_redirects_takes_a_permit_for_each_attempt_and_inside_all_share_one() {
    type Way = fn(Boxed) -> Boxed;
    let retries: Way = |it| within(RetryLayer::new(AtOnce), it);
    let follows: Way = |it| within(FollowRedirectLayer::new(), it);
    for (way, first) in [(retries, 500), (follows, 307)] {
        let (arrivals, limiter) = limited(2);
        let service = way(throttled(&limiter, upstream(&arrivals, first)));
        assert_eq!(answer(service).await.expect("an answer").status(), 200);
        arrivals.assert_each_took_a_permit();

        let (arrivals, limiter) = limited(2);
        let service = throttled(&limiter, way(upstream(&arrivals, first)));
        assert_eq!(answer(service).await.expect("an answer").status(), 200);
        arrivals.assert_shared_a_permit(&limiter).await;
    }
}

/// Requests that pass the outer one gather before the inner one, and go on together.
#[tokio::test(start_paused = true)]
async fn of_two_throttles_only_the_inner_one_is_exact() {
    let arrivals = Arrivals::default();
    let window = 10 * SECOND;
    let outer = build(per_second(2));
    let inner = build(Limiter::builder().quota(Quota::new(10, window)));
    let service = throttled(&inner, upstream(&arrivals, 200));
    let service = throttled(&outer, service);
    inner.acquire(KEY).cost(10).await.expect("a permit");
    join_all((0..20).map(|_| answer(service.clone()))).await;
    let history = arrivals.history();
    history.assert_at_most(10, window);
    assert_eq!(history.most_in_any(SECOND), 10);
}
