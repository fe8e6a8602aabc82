//! Layers of tower.

use std::convert::Infallible;
use std::future::{Ready, ready};

use futures_util::future::join_all;
use http::{Request, Response};
use tokio::time::{Instant, sleep};
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::load_shed::error::Overloaded;
use tower::retry::{Policy, RetryLayer};
use tower::timeout::TimeoutLayer;
use tower::timeout::error::Elapsed;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt as _, service_fn};
use tower_http::follow_redirect::FollowRedirectLayer;
use tower_throttle::{Error, ErrorKind, Limiter, Quota, ThrottleLayer, key};

use super::{Arrivals, KEY, MS, SECOND, build, left, limited, per_second};

type Answer = Result<Response<()>, BoxError>;

fn to(host: &str) -> Request<String> {
    let request = Request::get(format!("http://{host}/"));
    request.body(String::new()).expect("a valid request")
}

/// Answers each request as the closure says by its number, and after a quarter of a second if it is slow.
fn upstream(
    arrivals: &Arrivals,
    is_slow: bool,
    answer: fn(usize) -> http::response::Builder,
) -> impl Service<Request<String>, Response = Response<()>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let arrivals = arrivals.clone();
    service_fn(move |_| {
        let answer = answer(arrivals.note());
        async move {
            if is_slow {
                sleep(SECOND / 4).await;
            }
            Ok(answer.body(()).expect("a valid answer"))
        }
    })
}

fn well(_: usize) -> http::response::Builder {
    Response::builder()
}

fn fails_three_times(number: usize) -> http::response::Builder {
    Response::builder().status(if number < 3 { 500 } else { 200 })
}

fn redirects_three_times(number: usize) -> http::response::Builder {
    match number {
        0..3 => Response::builder().status(307).header("location", "/next"),
        _ => Response::builder(),
    }
}

/// Tries again at once, as long as the answer is a failure of the server.
#[derive(Debug, Clone)]
struct AtOnce;

impl<B, E> Policy<Request<String>, Response<B>, E> for AtOnce {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<String>,
        result: &mut Result<Response<B>, E>,
    ) -> Option<Ready<()>> {
        let is_failure = |answer: &Response<B>| answer.status().is_server_error();
        result.as_ref().is_ok_and(is_failure).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<String>) -> Option<Request<String>> {
        Some(request.clone())
    }
}

fn throttle(limiter: &Limiter) -> ThrottleLayer {
    ThrottleLayer::new(limiter.clone())
}

async fn answer<S, B>(service: S) -> Answer
where
    S: Service<Request<String>, Response = Response<B>, Error: Into<BoxError>>,
{
    let answer = service.oneshot(to(KEY)).await.map_err(Into::into);
    answer.map(|answer| answer.map(drop))
}

#[tokio::test(start_paused = true)]
async fn outside_a_retry_or_redirects_takes_a_permit_for_each_attempt() {
    let (arrivals, limiter) = limited(2);
    let service = ServiceBuilder::new()
        .layer(RetryLayer::new(AtOnce))
        .layer(throttle(&limiter))
        .service(upstream(&arrivals, false, fails_three_times));
    assert_eq!(answer(service).await.expect("an answer").status(), 200);
    arrivals.assert_each_took_a_permit();

    let (arrivals, limiter) = limited(2);
    let service = ServiceBuilder::new()
        .layer(FollowRedirectLayer::new())
        .layer(throttle(&limiter))
        .service(upstream(&arrivals, false, redirects_three_times));
    assert_eq!(answer(service).await.expect("an answer").status(), 200);
    arrivals.assert_each_took_a_permit();
}

#[tokio::test(start_paused = true)]
async fn inside_all_attempts_of_a_retry_or_of_redirects_share_one_permit_and_are_too_many() {
    let (arrivals, limiter) = limited(2);
    let service = ServiceBuilder::new()
        .layer(throttle(&limiter))
        .layer(RetryLayer::new(AtOnce))
        .service(upstream(&arrivals, false, fails_three_times));
    assert_eq!(answer(service).await.expect("an answer").status(), 200);
    arrivals.assert_shared_a_permit(&limiter).await;

    let (arrivals, limiter) = limited(2);
    let service = ServiceBuilder::new()
        .layer(throttle(&limiter))
        .layer(FollowRedirectLayer::new())
        .service(upstream(&arrivals, false, redirects_three_times));
    assert_eq!(answer(service).await.expect("an answer").status(), 200);
    arrivals.assert_shared_a_permit(&limiter).await;
}

/// Where the timeout has to be outside, a bound spares the wait.
#[tokio::test(start_paused = true)]
async fn outside_a_timeout_includes_the_wait_which_a_bound_refuses_at_once() {
    let (arrivals, limiter) = limited(1);
    let throttled = throttle(&limiter).layer(upstream(&arrivals, false, well));
    let service = TimeoutLayer::new(SECOND / 2).layer(throttled.clone());
    let start = Instant::now();
    answer(service.clone()).await.expect("the first");
    let error = answer(service).await.expect_err("it waits for too long");
    assert!(error.is::<Elapsed>() && start.elapsed() >= SECOND / 2);
    assert_eq!(arrivals.len(), 1);
    answer(throttled).await.expect("the wait is long enough");
    assert!(start.elapsed() < SECOND * 3 / 2, "{:?}", start.elapsed());

    let limiter = build(per_second(1).max_wait(SECOND / 2));
    let service = throttle(&limiter).layer(upstream(&arrivals, false, well));
    answer(service.clone()).await.expect("the first");
    let start = Instant::now();
    let error = answer(service).await.expect_err("the wait is too long");
    let error: &Error = error.downcast_ref().expect("the limiter's");
    assert!(error.is_limited() && start.elapsed().is_zero());
}

#[tokio::test(start_paused = true)]
async fn inside_a_timeout_begins_when_the_request_departs() {
    let (arrivals, limiter) = limited(1);
    let service = ServiceBuilder::new()
        .layer(throttle(&limiter))
        .layer(TimeoutLayer::new(SECOND / 2))
        .service(upstream(&arrivals, true, well));
    let answers = join_all((0..5).map(|_| answer(service.clone()))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert!(arrivals.history().span() >= Some(4 * SECOND));
}

/// When a request for another key departs, while one waits for its slot.
async fn waits_behind_another_key<S, B>(service: S) -> bool
where
    S: Service<Request<String>, Response = Response<B>, Error: Into<BoxError>> + Clone,
{
    let start = Instant::now();
    answer(service.clone()).await.expect("the first");
    let waits = answer(service.clone());
    let other = async {
        sleep(MS).await;
        let answer = service.oneshot(to("other.example.com")).await;
        assert!(answer.is_ok());
        start.elapsed() >= SECOND
    };
    tokio::join!(waits, other).1
}

#[tokio::test(start_paused = true)]
async fn outside_a_limit_on_concurrency_is_taken_up_by_those_who_wait_and_inside_it_is_not() {
    let (arrivals, limiter) = limited(1);
    let service = ServiceBuilder::new()
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(throttle(&limiter))
        .service(upstream(&arrivals, false, well));
    assert!(waits_behind_another_key(service).await);

    let (arrivals, limiter) = limited(1);
    let service = ServiceBuilder::new()
        .layer(throttle(&limiter))
        .layer(ConcurrencyLimitLayer::new(1))
        .service(upstream(&arrivals, false, well));
    assert!(!waits_behind_another_key(service).await);
}

/// Sends so many requests at once. Returns how many were shed, and how many the limiter refused.
async fn refused<S, B>(service: S, count: usize) -> (usize, usize)
where
    S: Service<Request<String>, Response = Response<B>, Error: Into<BoxError>> + Clone,
{
    let answers = join_all((0..count).map(|_| answer(service.clone()))).await;
    let errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    let is_full = |error: &&BoxError| {
        let error: Option<&Error> = error.downcast_ref();
        error.is_some_and(|error| error.kind() == ErrorKind::QueueFull)
    };
    let shed = errors.iter().filter(|error| error.is::<Overloaded>());
    (shed.count(), errors.iter().filter(is_full).count())
}

/// A throttle is always ready. A bound on the queue does what was meant.
#[tokio::test(start_paused = true)]
async fn outside_load_shedding_sheds_nothing_and_inside_it_has_spent_a_permit() {
    for (builder, expected) in [
        (per_second(10), (0, 0)),
        (per_second(10).max_waiting(30), (0, 60)),
    ] {
        let service = ServiceBuilder::new()
            .layer(LoadShedLayer::new())
            .layer(throttle(&build(builder)))
            .service(upstream(&Arrivals::default(), false, well));
        assert_eq!(refused(service, 100).await, expected);
    }
    let (arrivals, limiter) = limited(10);
    let service = ServiceBuilder::new()
        .layer(throttle(&limiter))
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(upstream(&arrivals, true, well));
    assert_eq!(refused(service, 10).await, (9, 0));
    assert_eq!((arrivals.len(), left(&limiter).await), (1, 0));
}

/// The throttle takes all that the buffer holds.
#[tokio::test(start_paused = true)]
async fn outside_a_buffer_bounds_nothing_and_inside_it_does_no_harm() {
    let (arrivals, limiter) = limited(10);
    let mut service = ServiceBuilder::new()
        .layer(BufferLayer::new(1))
        .layer(throttle(&limiter))
        .service(upstream(&arrivals, false, well));
    let start = Instant::now();
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let service = service.ready().await.expect("a service");
        waiting.push(tokio::spawn(service.call(to(KEY))));
    }
    assert!(start.elapsed() < SECOND / 10, "{:?}", start.elapsed());
    join_all(waiting).await;
    arrivals.history().assert_at_most(10, SECOND);

    let (arrivals, limiter) = limited(10);
    let service = ServiceBuilder::new()
        .layer(throttle(&limiter))
        .layer(BufferLayer::new(1))
        .service(upstream(&arrivals, false, well));
    assert_eq!(refused(service, 100).await, (0, 0));
    assert_eq!(arrivals.len(), 100);
    arrivals.history().assert_at_most(10, SECOND);
}

/// Requests that pass the outer one gather before the inner one, and go on together.
#[tokio::test(start_paused = true)]
async fn of_two_throttles_only_the_inner_one_is_exact() {
    let arrivals = Arrivals::default();
    let window = 10 * SECOND;
    let (outer, inner) = (
        build(per_second(2)),
        build(Limiter::builder().quota(Quota::new(10, window))),
    );
    let service = ServiceBuilder::new()
        .layer(throttle(&outer))
        .layer(throttle(&inner))
        .service(upstream(&arrivals, false, well));
    // So that those behind the outer one gather for a window.
    inner.acquire(KEY).cost(10).await.expect("a permit");
    join_all((0..20).map(|_| answer(service.clone()))).await;
    let history = arrivals.history();
    history.assert_at_most(10, window);
    assert_eq!(history.most_in_any(SECOND), 10);

    // Jointly, both are.
    let arrivals = Arrivals::default();
    let joint = build(per_second(2).quota(Quota::new(10, window)));
    let service = throttle(&joint)
        .key(key::constant("both"))
        .layer(upstream(&arrivals, false, well));
    join_all((0..20).map(|_| answer(service.clone()))).await;
    arrivals.history().assert_at_most(10, window);
    arrivals.history().assert_at_most(2, SECOND);
}
