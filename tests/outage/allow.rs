//! Who would rather exceed a limit than fail.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::{Limiter, Outage, Quota};

use super::support::switched::{Mode, Switched};
use super::{LIMIT, limiter};

#[tokio::test(start_paused = true)]
async fn everything_departs_while_the_store_is_out() {
    let store = Switched::default();
    let limiter = limiter(&store, Outage::Allow);
    store.switch(Mode::Refuses);
    let start = Instant::now();
    for cost in [1, LIMIT] {
        for answer in join_all((0..1_000).map(|_| limiter.acquire("a").cost(cost))).await {
            let permit = answer.expect("everything departs");
            assert!(permit.is_valid() && !permit.is_counted());
        }
    }
    assert!(
        limiter
            .try_acquire("a")
            .await
            .expect("an answer")
            .is_granted()
    );
    assert!(start.elapsed() < Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_again_once_the_store_is_back() {
    let store = Switched::default();
    let limiter = limiter(&store, Outage::Allow);
    store.switch(Mode::Refuses);
    join_all((0..1_000).map(|_| limiter.acquire("a"))).await;
    store.switch(Mode::Works);
    sleep(Duration::from_secs(2)).await;
    // Whoever comes first makes it known that the store is to be asked.
    limiter.acquire("a").await.expect("everything departs");
    sleep(Duration::from_millis(10)).await;
    assert!(!limiter.health().is_out());
    for _ in 0..LIMIT {
        limiter.try_acquire("a").await.expect("an answer");
    }
    assert!(
        !limiter
            .try_acquire("a")
            .await
            .expect("an answer")
            .is_granted()
    );
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_all_the_same() {
    let store = Switched::default();
    let limiter = limiter(&store, Outage::Allow);
    store.switch(Mode::Refuses);
    limiter.acquire("a").await.expect("everything departs");
    let start = Instant::now();
    // The store is not told, and says so.
    let until = start + Duration::from_secs(3);
    limiter
        .pause("a", until)
        .await
        .expect_err("the store is out");
    limiter.acquire("a").await.expect("after the pause");
    assert!(start.elapsed() >= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn who_waits_when_it_begins_departs_too() {
    let store = Switched::default();
    let limiter = Limiter::builder().quota(Quota::per_hour(1));
    let limiter = limiter.outage(Outage::Allow).store(store.clone());
    let limiter = limiter.build().expect("a valid policy");
    store.switch(Mode::Hangs);
    // They have asked when it is found out.
    let start = Instant::now();
    for answer in join_all((0..100).map(|_| limiter.acquire("a"))).await {
        answer.expect("everything departs");
    }
    assert!(start.elapsed() < Duration::from_millis(1_500));
}
