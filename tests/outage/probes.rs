//! An outage costs one call per interval, and not one per request.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::Outage;

use super::support::switched::{Mode, Switched};
use super::{assert_out, limiter};

#[tokio::test(start_paused = true)]
async fn a_store_that_is_out_is_asked_for_one_sign_of_life_per_interval() {
    for outage in [Outage::Deny, Outage::Allow, Outage::Local { share: 0.5 }] {
        let store = Switched::default();
        let limiter = limiter(&store, outage);
        store.switch(Mode::Refuses);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            let requests = (0..100).map(|key| {
                let acquire = limiter.acquire(key.to_string());
                acquire.max_wait(Duration::from_millis(100))
            });
            join_all(requests).await;
            sleep(Duration::from_millis(10)).await;
        }
        let (checks, asked) = store.asked();
        // Those that were under way when the first failed.
        assert!(asked <= 100, "{outage:?}: {asked} calls");
        // Every second at most, every half at least, but for the first few.
        assert!(
            (50..=130).contains(&checks),
            "{outage:?}: {checks} signs of life"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_only_gives_signs_of_life_is_not_overrun() {
    let store = Switched::default();
    let limiter = limiter(&store, Outage::Deny);
    store.switch(Mode::IsReadOnly);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        assert_out(limiter.acquire("a").await);
    }
    let (checks, asked) = store.asked();
    assert!(
        asked <= 150 && checks <= 150,
        "{asked} calls, {checks} signs of life"
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_for_a_sign_of_life_while_nobody_needs_it() {
    let store = Switched::default();
    let limiter = limiter(&store, Outage::Deny);
    store.switch(Mode::Refuses);
    assert_out(limiter.try_acquire("a").await);
    sleep(Duration::from_secs(60)).await;
    let (checks, _) = store.asked();
    assert!(checks <= 3, "{checks} signs of life");
    // Whoever comes finds out soon.
    store.switch(Mode::Works);
    let acquire = limiter.acquire("a").max_wait(Duration::from_millis(100));
    acquire.await.expect("the store is back");
}

#[tokio::test(start_paused = true)]
async fn health_tells_since_when_and_why() {
    let store = Switched::default();
    let limiter = limiter(&store, Outage::Deny);
    assert!(!limiter.health().is_out() && limiter.health().since().is_none());
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    store.switch(Mode::Refuses);
    assert_out(limiter.try_acquire("a").await);
    let health = limiter.health();
    assert!(health.is_out() && health.since() >= Some(start));
    assert_eq!(health.error().expect("it is out").to_string(), "refused");
    store.switch(Mode::Works);
    limiter.acquire("a").await.expect("the store is back");
    assert!(!limiter.health().is_out());
}

/// Where the runtime shuts down in which somebody asks for signs of life, those who wait in another do.
#[test]
fn whoever_waits_in_another_runtime_asks_on() {
    let runtime = || {
        Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
    };
    let store = Switched::default();
    let limiter = limiter(&store, Outage::Deny);
    store.switch(Mode::Refuses);
    let short_lived = runtime().expect("a runtime");
    let (asking, acquire) = (limiter.clone(), limiter.acquire("a"));
    short_lived.block_on(async move { assert_out(asking.try_acquire("a").await) });
    let lasting = runtime().expect("another");
    let waiting = lasting.spawn(acquire);
    std::thread::sleep(Duration::from_millis(100));
    short_lived.shutdown_background();
    std::thread::sleep(Duration::from_millis(100));
    store.switch(Mode::Works);
    let answer = lasting.block_on(async { timeout(Duration::from_secs(30), waiting).await });
    let permit = answer.expect("in time").expect("no panic");
    permit.expect("the store is back");
}
