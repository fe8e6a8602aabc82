//! `Throttle` keeps tower's readiness contract: it is always ready itself, holds nothing of the
//! service inside while a request waits, and calls it only when it is ready and the request may depart.

use std::pin::Pin;
use std::sync::MutexGuard;
use std::task::{Context, Poll, Waker};

use tokio::sync::Semaphore;
use tokio::time::Sleep;
use tower::limit::ConcurrencyLimit;
use tower::util::BoxService;
use tower_test::mock;
use tower_throttle::Throttle;

use crate::limiter::{GUARD, STEP, per_second};
use crate::prelude::*;

type Mock = mock::Mock<Request<()>, Response<()>>;
type Handle = mock::Handle<Request<()>, Response<()>>;

fn layer(builder: LimiterBuilder) -> ThrottleLayer {
    ThrottleLayer::new(builder.build().expect("a valid policy"))
}

/// A throttled mock that does nothing unless its handle says so.
fn throttled(builder: LimiterBuilder) -> (Throttle<Mock>, Handle) {
    let (mock, handle) = mock::pair();
    (layer(builder).layer(mock), handle)
}

#[tokio::test(start_paused = true)]
async fn a_service_that_panics_in_its_call_has_sent_the_request() {
    let sent = Arc::new(Mutex::new(0));
    let sends = sent.clone();
    let panics = tower::service_fn(move |_: Request<()>| -> Ready<io::Result<Response<()>>> {
        *sends.lock().expect("no panic") += 1;
        panic!("after it was sent");
    });
    let service = layer(Limiter::builder().quota(Quota::per_minute(1))).layer(panics);
    for _ in 0..5 {
        let request = service.clone().oneshot(get("/"));
        let _ = tokio::spawn(timeout(SECOND, request)).await;
    }
    assert_eq!(*sent.lock().expect("no panic"), 1);
}

/// Lets all tasks do what they can do at this moment.
pub(crate) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn get(path: &str) -> Request<()> {
    let uri = format!("http://upstream{path}");
    Request::get(uri).body(()).expect("a valid request")
}

/// Answers the next call, which has to come within a minute, and says for what it was.
async fn answer(handle: &mut Handle) -> String {
    let called = timeout(60 * SECOND, handle.next_request()).await;
    let (request, respond) = called.expect("a call").expect("a service");
    respond.send_response(Response::new(()));
    request.uri().path().to_owned()
}

/// Sends a request from a task of its own. It has its place in the queue once this returns.
async fn start<S, B>(service: &S, path: &str) -> JoinHandle<Result<Response<()>, BoxError>>
where
    S: Service<Request<()>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
{
    let response = service.clone().oneshot(get(path));
    let mut response = Box::pin(response.map(|it| it.map(|it| it.map(drop))));
    if let Poll::Ready(answer) = poll!(&mut response) {
        return tokio::spawn(ready(answer));
    }
    tokio::spawn(response)
}

/// All clones of a [`Strict`] service share this.
#[derive(Debug, Default)]
struct Gate {
    is_open: bool,
    /// How many clones are ready and were not called.
    set_aside: usize,
    calls: Vec<(String, Instant)>,
    wakers: Vec<Waker>,
}

/// A service that gets ready while its gate is open, and panics when it is called without having
/// got ready, itself and since its last call.
#[derive(Debug, Default)]
struct Strict {
    gate: Arc<Mutex<Gate>>,
    is_ready: bool,
    /// How long each clone takes to get ready, from when it is first asked.
    warm_up: Duration,
    warming: Option<Pin<Box<Sleep>>>,
}

impl Strict {
    fn open() -> Self {
        let service = Self::default();
        service.set_open(true);
        service
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().expect("no panic within")
    }

    fn set_open(&self, is_open: bool) {
        let mut gate = self.gate();
        gate.is_open = is_open;
        gate.wakers.drain(..).for_each(Waker::wake);
    }
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        let mut clone = Self::default();
        (clone.gate, clone.warm_up) = (self.gate.clone(), self.warm_up);
        clone
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        self.gate().set_aside -= usize::from(self.is_ready);
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.is_ready {
            return Poll::Ready(Ok(()));
        }
        let mut gate = self.gate.lock().expect("no panic within");
        if !gate.is_open {
            gate.wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        if !self.warm_up.is_zero() {
            let warm_up = || Box::pin(sleep(self.warm_up));
            let warming = self.warming.get_or_insert_with(warm_up);
            std::task::ready!(warming.as_mut().poll(cx));
        }
        self.is_ready = true;
        gate.set_aside += 1;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let path = request.uri().path().to_owned();
        assert!(self.is_ready, "called without being ready: {path}");
        self.is_ready = false;
        let mut gate = self.gate();
        gate.set_aside -= 1;
        gate.calls.push((path, Instant::now()));
        ready(Ok(Response::new(())))
    }
}

fn broken() -> io::Error {
    io::Error::other("broken")
}

#[tokio::test(start_paused = true)]
async fn is_ready_however_many_wait_and_though_the_service_is_not() {
    let (service, mut handle) = throttled(per_second(1));
    let mut service = mock::Spawn::new(service);
    handle.allow(0);
    let mut waiting = Vec::new();
    for path in ["/a", "/b", "/c"] {
        assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
        let mut response = Box::pin(service.call(get(path)));
        assert!(poll!(&mut response).is_pending());
        waiting.push(response);
    }
    assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_permit_has_expired_holds_no_concurrency_permit_while_it_waits_again() {
    let (mock, mut handle) = mock::pair();
    handle.allow(0);
    let permits = Arc::new(Semaphore::new(1));
    let limited = ConcurrencyLimit::with_semaphore(mock, permits.clone());
    let limiter = build(per_second(1));
    let service = ThrottleLayer::new(limiter.clone()).layer(limited);

    let late = start(&service, "/late").await;
    settle().await;
    assert_eq!(permits.available_permits(), 0, "it is getting ready");
    let other = tokio::spawn(limiter.acquire("upstream").into_future());
    sleep(GUARD * 5).await;
    handle.allow(1);
    for _ in 0..9 {
        sleep(100 * MS).await;
        assert_eq!(permits.available_permits(), 1);
    }
    assert_eq!(answer(&mut handle).await, "/late");
    late.await.expect("no panic").expect("an answer");
    other.await.expect("no panic").expect("a permit");
}

#[tokio::test(start_paused = true)]
async fn only_the_very_clone_that_got_ready_is_called() {
    let (strict, layer) = (Strict::default(), layer(per_second(5)));
    is_called_when_it_is_ready(&strict, layer.layer(strict.clone())).await;
    // A service that is not `Clone` is shared.
    let (strict, layer) = (Strict::default(), layer.shared());
    let service = layer.layer(BoxService::new(strict.clone()));
    is_called_when_it_is_ready(&strict, service).await;
}

async fn is_called_when_it_is_ready<S, B>(strict: &Strict, service: S)
where
    S: Service<Request<()>, Response = Response<B>, Error = BoxError> + Clone,
{
    // Ready for moments only, at other times than the departures.
    let gate = strict.clone();
    let flutter = tokio::spawn(async move {
        loop {
            sleep(37 * MS).await;
            gate.set_open(true);
            sleep(4 * MS).await;
            gate.set_open(false);
        }
    });
    let sent = (0..40).map(|number| service.clone().oneshot(get(&format!("/{number}"))));
    // Permits that expire are given back, so that each window is full.
    let answers = timeout(9 * SECOND, join_all(sent)).await;
    flutter.abort();
    for answer in answers.expect("an end") {
        answer.expect("an answer");
    }
    let history: History = strict.gate().calls.iter().map(|it| it.1).collect();
    assert_eq!(history.len(), 40);
    history.assert_at_most(5, SECOND);
    assert_eq!(strict.gate().set_aside, 0);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_takes_longer_to_get_ready_than_permits_are_valid_is_called_at_last() {
    let mut strict = Strict::open();
    strict.warm_up = GUARD * 5;
    let service = layer(per_second(1)).layer(strict);
    let answer = timeout(60 * SECOND, service.oneshot(get("/slow"))).await;
    answer.expect("a call").expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn a_shared_service_answers_several_requests_at_a_time() {
    let slow = tower::service_fn(|_: Request<()>| async {
        sleep(SECOND).await;
        Ok::<_, Infallible>(Response::new(()))
    });
    let service = layer(per_second(3)).shared().layer(BoxService::new(slow));
    let begun = Instant::now();
    // A task that awaits in a block has to prove more than one that awaits a future.
    let sent = (0..3).map(|_| {
        let mut service = service.clone();
        tokio::spawn(async move { service.ready().await?.call(get("/")).await })
    });
    for answer in join_all(sent).await {
        answer.expect("no panic").expect("an answer");
    }
    assert!(begun.elapsed() < SECOND + GUARD, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_permit_again_keeps_no_shared_service() {
    let strict = Strict::default();
    let limiter = build(per_second(10));
    let layer = ThrottleLayer::new(limiter.clone())
        .key(|request: &Request<()>| request.uri().path().to_owned())
        .shared();
    let service = layer.layer(BoxService::new(strict.clone()));
    let paused = start(&service, "/paused").await;
    for _ in 0..3 {
        // Its permit expires, and there is no other when the service is ready.
        sleep(GUARD * 5).await;
        let until = Instant::now() + 60 * SECOND;
        limiter.pause("/paused", until).await.expect("a pause");
        strict.set_open(true);
        settle().await;
        strict.set_open(false);
        let other = timeout(SECOND, service.clone().oneshot(get("/other"))).await;
        other.expect("an end").expect("an answer");
        limiter.resume("/paused").await.expect("an end of it");
        settle().await;
    }
    strict.set_open(true);
    paused.await.expect("no panic").expect("an answer");
    let gate = strict.gate();
    let paths = gate.calls.iter().map(|it| &*it.0);
    assert!(paths.eq(["/other", "/other", "/other", "/paused"]));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_ends_before_its_call_releases_the_shared_service() {
    let (mock, mut handle) = mock::pair::<Request<()>, Response<()>>();
    let service = layer(per_second(3)).shared().layer(BoxService::new(mock));
    handle.allow(0);
    let dropped = start(&service, "/dropped").await;
    let failing = start(&service, "/failing").await;
    let next = start(&service, "/next").await;
    dropped.abort();
    assert!(dropped.await.expect_err("aborted").is_cancelled());
    handle.send_error(broken());
    let error = failing.await.expect("no panic").expect_err("broken");
    assert!(error.is::<io::Error>());
    handle.allow(1);
    assert_eq!(answer(&mut handle).await, "/next");
    next.await.expect("no panic").expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn errors_pass_through_unchanged_and_a_service_that_fails_to_get_ready_costs_nothing() {
    let (service, mut handle) = throttled(per_second(1));
    handle.send_error(broken());
    let error = service.clone().oneshot(get("/a")).await;
    assert!(error.expect_err("broken").is::<io::Error>());

    let begun = Instant::now();
    let next = start(&service, "/next").await;
    assert_eq!(answer(&mut handle).await, "/next");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    next.await.expect("no panic").expect("an answer");
    let failing = start(&service, "/failing").await;
    let (_, respond) = handle.next_request().await.expect("a call");
    respond.send_error(broken());
    let error = failing.await.expect("no panic").expect_err("broken");
    assert!(error.is::<io::Error>());
    let failing = tower::service_fn(|_: Request<()>| ready(Err::<Response<()>, _>(broken())));
    let service = layer(per_second(1)).layer(failing);
    let error = service.oneshot(get("/a")).await.expect_err("broken");
    assert!(error.is::<io::Error>());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_before_the_service_is_ready_costs_nothing() {
    for held in [Duration::ZERO, GUARD / 2, GUARD * 5] {
        let (service, mut handle) = throttled(per_second(1));
        handle.allow(0);
        let mut dropped = Box::pin(service.clone().oneshot(get("/dropped")));
        assert!(poll!(&mut dropped).is_pending());
        sleep(held).await;
        drop(dropped);

        handle.allow(1);
        let begun = Instant::now();
        let _next = start(&service, "/next").await;
        assert_eq!(answer(&mut handle).await, "/next");
        assert_eq!(begun.elapsed(), Duration::ZERO, "after {held:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_has_departed_if_it_was_called_and_else_lets_the_next_move_up() {
    let (service, mut handle) = throttled(per_second(1));
    let mut departed = Box::pin(service.clone().oneshot(get("/departed")));
    assert!(poll!(&mut departed).is_pending());
    let (_, _unanswered) = handle.next_request().await.expect("a call");
    drop(departed);

    let begun = Instant::now();
    let mut waits = Box::pin(service.clone().oneshot(get("/waits")));
    assert!(poll!(&mut waits).is_pending());
    let _next = start(&service, "/next").await;
    sleep(STEP / 2).await;
    drop(waits);
    assert_eq!(answer(&mut handle).await, "/next");
    let took = begun.elapsed();
    assert!(took >= SECOND && took <= STEP + 2 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn each_request_spends_its_cost_whatever_its_rule_says() {
    let rule = Rule::named("all").quota(Quota::per_hour(10)).cost(2);
    let rules = Rules::new([rule]).expect("a valid table");
    let layer = layer(Limiter::builder().rules(rules))
        .cost(|request: &Request<()>| request.uri().path()[1..].parse::<u32>().expect("a number"));
    let service = layer.layer(Strict::open());
    for (path, remaining) in [("/1", 9), ("/5", 4), ("/4", 0)] {
        let response = service.clone().oneshot(get(path)).await;
        let response = response.expect("an answer");
        let departure: &Departure = response.extensions().get().expect("a departure");
        assert_eq!(departure.remaining(), remaining);
    }
}

#[tokio::test(start_paused = true)]
async fn limited_requests_carry_how_they_departed() {
    let service = layer(per_second(2)).layer(Strict::open());
    let departures = join_all((0..4).map(async |_| {
        let response = service.clone().oneshot(get("/a")).await;
        let response = response.expect("an answer");
        let departure: &Departure = response.extensions().get().expect("a departure");
        (departure.remaining(), departure.waited(), departure.reset())
    }))
    .await;
    let remaining: Vec<_> = departures.iter().map(|it| it.0).collect();
    assert_eq!(remaining, [1, 0, 0, 0]);
    for (nth, (_, waited, reset)) in departures.into_iter().enumerate() {
        let least = if nth < 2 { Duration::ZERO } else { STEP };
        assert!((least..=least + 2 * MS).contains(&waited), "{waited:?}");
        assert!((STEP..=STEP + least + 2 * MS).contains(&reset), "{reset:?}");
    }
}
