//! The answers that callers get, and functions that are limited.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;
use tower_throttle::key::{Extracted, KeyExtractor as _};
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Decision, key};

use crate::schemes::{LONG, MS, PATIENCE, SECOND, depart, limiter, quota, since_epoch, store};
use support::redis_server::RedisServer;

#[tokio::test]
async fn refusals_name_the_exact_delay() {
    let server = RedisServer::start();
    let builder = quota(1, SECOND / 2, Algorithm::SlidingLog).guard(MS(800));
    let limiter = limiter(&server, builder).await;
    let first = depart(&limiter, "a").await;
    // Each refusal names the time of the next departure, as closely as the call's duration tells.
    let (mut earliest, mut latest) = (first + SECOND / 2, Duration::MAX);
    for _ in 0..20 {
        let sent = since_epoch();
        let Decision::Limited(limited) = limiter.try_acquire("a").await.expect("a decision") else {
            assert!(since_epoch() + CLOCK >= earliest, "granted too early");
            break;
        };
        let received = since_epoch();
        let took = received - sent;
        earliest = earliest.max(sent + limited.delay() - took);
        latest = latest.min(received + limited.delay());
        assert!(earliest <= latest + CLOCK, "{earliest:?} to {latest:?}");
    }
    let impatient = limiter.acquire("a").max_wait(MS(1));
    let early = since_epoch() + MS(1) < earliest;
    match impatient.await {
        Err(error) => assert!(error.is_limited() && error.wait() > Some(MS(1)), "{error}"),
        Ok(_) => assert!(!early, "granted too early"),
    }
    let departed = depart(&limiter, "a").await;
    assert!(
        departed + CLOCK >= earliest,
        "{departed:?}, promised {earliest:?}"
    );
}

/// The system's clock may be slewed.
const CLOCK: Duration = Duration::from_millis(1);

/// No request can name the key that the others share.
#[tokio::test]
async fn permits_tell_what_remains_and_requests_without_a_name_share_one_key() {
    let server = RedisServer::start();
    let builder = quota(3, LONG, Algorithm::SlidingLog).guard(PATIENCE);
    let limiter = limiter(&server, builder).await;
    let user = key::header("x-user").or("anonymous");
    let ask = async |name: Option<&str>| {
        let request = http::Request::get("/");
        let request = match name {
            Some(name) => request.header("x-user", name),
            None => request,
        };
        let request = request.body(()).expect("a valid request");
        let Extracted::Key(key) = user.extract(&request) else {
            panic!("every request has a key");
        };
        match limiter.try_acquire(key).await.expect("a decision") {
            Decision::Granted(permit) => Some((permit.remaining(), permit.reset())),
            Decision::Limited(limited) => {
                assert!(limited.remaining() == 0 && limited.delay() <= limited.reset());
                None
            }
        }
    };
    for name in [None, Some("alice"), Some("anonymous")] {
        for expected in [2, 1, 0] {
            let (remaining, reset) = ask(name).await.expect("it remains");
            assert_eq!(remaining, expected);
            assert!(reset > LONG / 2 && reset < LONG + PATIENCE * 2, "{reset:?}");
        }
    }
    for name in [None, Some("alice"), Some("anonymous"), None] {
        assert_eq!(ask(name).await, None);
    }
}

#[tokio::test]
async fn an_outage_is_an_error_and_never_a_pass() {
    let mut server = RedisServer::start();
    let store = store(&server).await;
    let limiter = |timeout| {
        let builder = quota(1_000_000, LONG, Algorithm::SlidingLog);
        let builder = builder.max_wait(SECOND);
        let builder = builder.store(store.clone().timeout(timeout));
        builder.build().expect("a valid policy")
    };
    let (patient, hasty) = (limiter(PATIENCE), limiter(SECOND / 10));
    let called = Mutex::new(0);
    let call = async || *called.lock().expect("no panic") += 1;
    patient.run("a", call).await.expect("a call");

    server.sigstop();
    let (acquired, tried) = (hasty.acquire("a").await, hasty.try_acquire("a").await);
    assert!(acquired.is_err_and(|error| error.is_store()));
    assert!(tried.is_err_and(|error| error.is_store()));
    let run = hasty.run("a", call).await;
    assert!(run.is_err_and(|error| error.is_store()));
    server.kill9();
    let (acquired, tried) = (patient.acquire("a").await, patient.try_acquire("a").await);
    assert!(acquired.is_err_and(|error| error.is_store()));
    assert!(tried.is_err_and(|error| error.is_store()));
    let run = patient.run("a", call).await;
    assert!(run.is_err_and(|error| error.is_store()));
    assert_eq!(*called.lock().expect("no panic"), 1);

    server.restart();
    let deadline = since_epoch() + PATIENCE;
    while let Err(error) = patient.run("a", call).await {
        assert!(error.is_store() && since_epoch() < deadline, "{error}");
        sleep(MS(10)).await;
    }
    assert_eq!(*called.lock().expect("no panic"), 2);
}

#[tokio::test]
async fn a_limit_is_put_on_any_function() {
    struct Oracle(Mutex<Vec<Duration>>);

    impl Oracle {
        async fn ask(&self, question: u64) -> u64 {
            self.0.lock().expect("no panic").push(since_epoch());
            question + 1
        }
    }

    let server = RedisServer::start();
    let (limit, window) = (5, MS(100));
    // For what a busy machine does between the permit and the reading of the clock.
    let builder = quota(limit, window, Algorithm::SlidingLog).buffer(MS(400));
    let (one, other) = (
        limiter(&server, builder.clone()).await,
        limiter(&server, builder).await,
    );
    let oracle = Oracle(Mutex::default());
    let methods = (0..10).map(|question| {
        let oracle = &oracle;
        one.run("oracle", move || oracle.ask(question))
    });
    let closures = (10..20).map(|question| {
        let oracle = &oracle;
        other.run("oracle", async move || oracle.ask(question).await)
    });
    let (first, then) = futures_util::join!(join_all(methods), join_all(closures));
    let answers: Result<Vec<_>, _> = first.into_iter().chain(then).collect();
    assert_eq!(answers.expect("calls"), (1..=20).collect::<Vec<_>>());
    let history: History = oracle.0.lock().expect("no panic").drain(..).collect();
    assert_eq!(history.len(), 20);
    history.assert_at_most(limit.into(), window);
}
