//! `Limiter::run` calls plain functions once they may depart, and hands through what they return.

use std::cell::Cell;
use std::future::{self, Ready};
use std::rc::Rc;
use std::time::Duration;

use support::spend::build;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::{ErrorKind, Limiter, Quota};

const SECOND: Duration = Duration::from_secs(1);

fn limited(quota: Quota) -> Limiter {
    build(Limiter::builder().quota(quota))
}

#[tokio::test(start_paused = true)]
async fn a_function_may_cost_more_and_wait_no_longer_than_it_says() {
    let limiter = limited(Quota::new(4, SECOND));
    let dear = || limiter.acquire("a").cost(3);
    dear().run(|| async {}).await.expect("a call");
    let called = Cell::new(false);
    let bounded = dear().max_wait(SECOND / 2);
    let error = bounded
        .run(|| async { called.set(true) })
        .await
        .unwrap_err();
    assert!(error.is_limited() && !called.get(), "{error}");
    assert_eq!(limiter.peek("a").await.expect("a look").remaining(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_function_is_not_called() {
    let calls = Cell::new(0);
    let call = || {
        calls.set(calls.get() + 1);
        future::ready(())
    };
    let limiter = build(
        Limiter::builder()
            .quota(Quota::per_second(1))
            .max_wait(SECOND / 2),
    );
    limiter.run("a", call).await.expect("a call");
    let error = limiter.run("a", call).await.expect_err("a refusal");
    assert!(
        error.is_limited() && error.wait() > Some(SECOND / 2),
        "{error}"
    );
    let error = limiter.run("", call).await.expect_err("a refusal");
    assert_eq!(error.kind(), ErrorKind::EmptyKey, "{error}");
    assert_eq!(calls.get(), 1);

    // And the refused ones have consumed nothing.
    sleep(SECOND * 3 / 4).await;
    limiter.run("a", call).await.expect("a call");
    assert_eq!(calls.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_function_whose_caller_gives_up_in_the_line_is_not_called_and_takes_no_slot() {
    let limiter = limited(Quota::per_second(1));
    let called = Cell::new(false);
    limiter
        .run("a", || future::ready(()))
        .await
        .expect("a call");
    let start = Instant::now();
    let impatient = limiter.run("a", || {
        called.set(true);
        future::ready(())
    });
    timeout(SECOND / 2, impatient)
        .await
        .expect_err("still in the line");
    limiter
        .run("a", || future::ready(()))
        .await
        .expect("a call");
    assert!(start.elapsed() < SECOND * 3 / 2, "{:?}", start.elapsed());
    sleep(SECOND * 5).await;
    assert!(!called.get());
}

#[tokio::test(start_paused = true)]
async fn whatever_a_function_returns_is_handed_through() {
    let limiter = limited(Quota::per_second(1));
    // A result stays a result within the limiter's own.
    let failing = || async { Err::<u8, _>("the oracle is closed") };
    let answer = limiter.run("a", failing).await.expect("a call");
    assert_eq!(answer, Err("the oracle is closed"));

    let nothing: () = limiter.run("a", async || ()).await.expect("a call");
    assert_eq!(nothing, ());

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
