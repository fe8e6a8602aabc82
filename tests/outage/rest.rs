//! Who has nothing to do for a line sleeps, whatever the store does.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_throttle::{Limiter, Outage, Quota};

use super::assert_out;
use super::support::switched::{Mode, Switched};

const WINDOW: Duration = Duration::from_secs(10);

/// With one departure per window, which is over.
async fn exhausted(store: &Switched, outage: Outage) -> Limiter {
    let limiter = Limiter::builder().quota(Quota::new(1, WINDOW));
    let limiter = limiter.store(store.clone()).outage(outage).build();
    let limiter = limiter.expect("a valid policy");
    limiter.acquire("a").await.expect("the first");
    limiter
}

#[tokio::test(start_paused = true)]
async fn whoever_looks_whether_something_was_said_waits_for_the_answer() {
    for mode in [Mode::Hangs, Mode::Refuses, Mode::IsReadOnly] {
        for outage in [Outage::Deny, Outage::Local { share: 0.5 }] {
            let store = Switched::quiet();
            let limiter = exhausted(&store, outage).await;
            let start = Instant::now();
            let waiting = limiter.clone();
            let waiting = tokio::spawn(async move { waiting.acquire("a").await });
            sleep(Duration::from_millis(100)).await;
            store.switch(mode);
            let permit = waiting.await.expect("no panic").expect("its slot");
            assert!(permit.is_valid());
            assert!(start.elapsed() >= WINDOW - Duration::from_millis(100));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_after_a_pause_waits_for_the_store_too() {
    let store = Switched::quiet();
    let limiter = exhausted(&store, Outage::Deny).await;
    let waiting = limiter.clone();
    let waiting = tokio::spawn(async move { waiting.acquire("a").await });
    sleep(Duration::from_millis(100)).await;
    let until = Instant::now() + 3 * WINDOW;
    limiter.pause("a", until).await.expect("the store hears it");
    sleep(Duration::from_secs(1)).await;
    limiter.resume("a").await.expect("the store hears it");
    store.switch(Mode::Refuses);
    assert_out(limiter.acquire("b").max_wait(Duration::ZERO).await);
    sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    store.switch(Mode::Works);
    waiting.await.expect("no panic").expect("a slot");
}

/// More than one call gives back.
#[tokio::test(start_paused = true)]
async fn a_line_that_all_have_left_is_closed_while_the_store_is_out() {
    let store = Switched::default();
    let limiter = exhausted(&store, Outage::Deny).await;
    let mut waiting = JoinSet::new();
    for _ in 0..5_000 {
        waiting.spawn(limiter.acquire("a"));
    }
    sleep(Duration::from_secs(1)).await;
    store.switch(Mode::Refuses);
    assert_out(limiter.try_acquire("b").await);
    waiting.shutdown().await;
    sleep(Duration::from_secs(30)).await;
    let (checks, _) = store.asked();
    sleep(Duration::from_secs(30)).await;
    assert_eq!((limiter.queues(), store.asked().0), (0, checks));
}
