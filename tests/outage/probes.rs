//! An outage costs one call per interval, and not one per request.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::key::Key;
use tower_throttle::store::Store as _;
use tower_throttle::{Limiter, Outage, Quota, Recovery};

use super::support::switched::{Mode, Switched};
use super::{LIMIT, WINDOW, assert_out, limiter};

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
    let error = health.error().expect("it is out");
    assert_eq!(error.to_string(), "the store cannot be reached");
    store.switch(Mode::Works);
    limiter.acquire("a").await.expect("the store is back");
    assert!(!limiter.health().is_out());
}

/// A process that is about to say that keys are to rest, as the store has lost their state.
#[tokio::test(start_paused = true)]
async fn whoever_has_a_loss_to_tell_waits_for_the_store_as_all_do() {
    const KEYS: u64 = 100;
    for ends in [true, false] {
        let store = Switched::default();
        let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
        let builder = builder.store(store.clone()).recovery(Recovery::Strict);
        let limiter = builder.build().expect("a valid policy");
        let all =
            || join_all((0..KEYS).map(|key| limiter.try_acquire(key.to_string()).into_future()));
        all().await;
        for key in 0..KEYS {
            let key = Key::from(key.to_string());
            let reset = store.reset(&key, &limiter.policy());
            reset.await.expect("it forgets");
        }
        let asking = tokio::spawn(all());
        // The answers are under way, and what is said next fails.
        sleep(Duration::from_micros(500)).await;
        store.switch(Mode::Refuses);
        asking.await.expect("no panic");
        sleep(Duration::from_secs(1)).await;
        let before = store.asked();
        sleep(Duration::from_secs(20)).await;
        let after = store.asked();
        assert_eq!(after.1, before.1, "only signs of life are asked for");
        assert!((10..50).contains(&(after.0 - before.0)), "{after:?}");
        if ends {
            drop(limiter);
            sleep(Duration::from_secs(2)).await;
            let ended = store.asked();
            sleep(Duration::from_secs(20)).await;
            assert_eq!(store.asked(), ended);
        } else {
            store.switch(Mode::Works);
            sleep(Duration::from_secs(3)).await;
            assert_eq!(store.asked().1, after.1 + KEYS, "each is told of once");
        }
    }
}

/// As a readiness check that lets no traffic through while the store is out.
#[tokio::test(start_paused = true)]
async fn whoever_asks_for_nothing_but_health_learns_that_the_store_is_back() {
    let store = Switched::default();
    let limiter = limiter(&store, Outage::Deny);
    store.switch(Mode::Refuses);
    assert_out(limiter.try_acquire("a").await);
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
        assert!(limiter.health().is_out());
    }
    let (checks, asked) = store.asked();
    assert!(checks <= 130 && asked == 1, "{checks} signs of life");
    store.switch(Mode::Works);
    assert!(limiter.health().is_out(), "nobody has asked yet");
    sleep(Duration::from_secs(2)).await;
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
