//! `Limiter::run` calls plain functions once they may depart, and hands through what they return.

use std::cell::Cell;
use std::future::{self, Ready};
use std::rc::Rc;
use std::time::Duration;

use support::spend::{build, per_second, under};
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::ErrorKind;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_function_that_is_refused_or_given_up_is_not_called_and_consumes_nothing() {
    let limiter = build(under(&["4/s"]));
    let calls = Cell::new(0);
    let call = || async { calls.set(calls.get() + 1) };
    let dear = || limiter.acquire("a").cost(3);
    dear().run(call).await.expect("a call");

    let error = dear().max_wait(SECOND / 2).run(call).await.unwrap_err();
    assert!(error.is_limited() && error.wait() > Some(SECOND / 2));
    let error = limiter.run("", call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::EmptyKey, "{error}");
    let given_up = timeout(SECOND / 2, dear().run(call)).await;
    given_up.expect_err("it waits");
    assert_eq!(limiter.peek("a").await.expect("a look").remaining(), 1);
    sleep(SECOND * 5).await;
    assert_eq!(calls.get(), 1);
    let start = Instant::now();
    dear().run(call).await.expect("a call");
    assert!(start.elapsed().is_zero() && calls.get() == 2);
}

#[tokio::test(start_paused = true)]
async fn whatever_a_function_returns_is_handed_through() {
    let limiter = build(per_second(1));
    // A result stays a result within the limiter's own.
    let failing = || async { Err::<u8, _>("the oracle is closed") };
    let answer = limiter.run("a", failing).await.expect("a call");
    assert_eq!(answer, Err("the oracle is closed"));

    // Neither `Send` nor `Clone` nor `'static` is asked for.
    let text = String::from("borrowed");
    let borrowed = limiter.run("a", || async { &text[..4] }).await;
    assert_eq!(borrowed.expect("a call"), "borr");
    let shared = Rc::new(Cell::new(1));
    let moved = shared.clone();
    let returned = limiter.run("a", move || async move { moved }).await;
    returned.expect("a call").set(2);
    assert_eq!(shared.get(), 2);

    // Any future will do.
    let ready: Ready<[u8; 2]> = future::ready([1, 2]);
    assert_eq!(limiter.run("a", || ready).await.expect("a call"), [1, 2]);
}
