//! By default nothing departs, and who waits goes on when the store is back.

use std::error::Error as _;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::store::StoreError;
use tower_throttle::{Limiter, Outage, Quota};

use super::support::switched::{Mode, Switched};
use super::{LIMIT, assert_out, limiter};

fn denying(store: &Switched) -> Limiter {
    limiter(store, Outage::Deny)
}

const MODES: [Mode; 3] = [Mode::Refuses, Mode::Hangs, Mode::IsReadOnly];

#[tokio::test(start_paused = true)]
async fn who_has_no_bound_waits_for_five_seconds() {
    for mode in MODES {
        let store = Switched::default();
        let limiter = denying(&store);
        store.switch(mode);
        let start = Instant::now();
        let waiting = (0..100).map(|_| limiter.acquire("a"));
        for answer in join_all(waiting).await {
            assert_out(answer);
        }
        let waited = start.elapsed();
        let (least, most) = (Duration::from_secs(5), Duration::from_millis(6_100));
        assert!(waited >= least && waited <= most, "{mode:?}: {waited:?}");
        // Who comes later waits as long.
        let start = Instant::now();
        assert_out(limiter.acquire("a").await);
        let waited = start.elapsed();
        assert!(waited >= least && waited <= most, "{mode:?}: {waited:?}");
        assert_eq!(limiter.queues(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_a_bound_waits_as_long_as_that() {
    for mode in MODES {
        let store = Switched::default();
        let limiter = denying(&store);
        store.switch(mode);
        // So that it is known, or not.
        for _ in 0..2 {
            let waiting = [200, 2_000, 20_000].map(|millis| {
                let bound = Duration::from_millis(millis);
                let acquire = limiter.acquire("a").max_wait(bound);
                async move {
                    let start = Instant::now();
                    assert_out(acquire.await);
                    let waited = start.elapsed();
                    // A call that hangs is not cut short.
                    let most = bound.max(Duration::from_secs(1)) + Duration::from_millis(100);
                    assert!(waited >= bound && waited <= most, "{mode:?}: {waited:?}");
                }
            });
            join_all(waiting).await;
        }
    }
}

/// Whatever the store has said since.
#[tokio::test(start_paused = true)]
async fn who_was_in_a_call_that_was_lost_is_told_that_slots_may_be() {
    for mode in MODES {
        let store = Switched::default();
        let limiter = denying(&store);
        store.switch(mode);
        let error = limiter.acquire("a").await.expect_err("it is out");
        let source = error.source().and_then(|it| it.downcast_ref());
        let source: &StoreError = source.expect("the store's own error");
        assert_eq!(source.is_outcome_unknown(), mode == Mode::Hangs);
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_is_told_at_once() {
    let store = Switched::default();
    let limiter = denying(&store);
    store.switch(Mode::Hangs);
    assert_out(limiter.try_acquire("a").await);
    let start = Instant::now();
    for _ in 0..100 {
        assert_out(limiter.try_acquire("a").await);
        assert_out(limiter.acquire("a").max_wait(Duration::ZERO).await);
        assert_out(limiter.peek("a").await);
        assert_out(limiter.reset("a").await);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn when_the_store_is_back_all_go_on_in_their_order() {
    for mode in MODES {
        let store = Switched::default();
        let limiter = denying(&store);
        store.switch(mode);
        let start = Instant::now();
        let mut waiting = Vec::new();
        for place in 0..3 * LIMIT {
            let limiter = limiter.clone();
            waiting.push(tokio::spawn(async move {
                let permit = limiter.acquire("a").await.expect("it comes back");
                assert!(permit.is_valid());
                (Instant::now(), place)
            }));
            sleep(Duration::from_millis(50)).await;
        }
        sleep(Duration::from_secs(2)).await;
        store.switch(Mode::Works);
        let departed = join_all(waiting).await.into_iter();
        let departed: Vec<_> = departed.map(|it| it.expect("no panic")).collect();
        assert!(departed.is_sorted(), "{departed:?}");
        let last = departed.last().expect("there are some").0;
        // A second until that is known, three windows, and what slots the lost calls have cost.
        assert!(
            last - start < Duration::from_secs(12),
            "{mode:?}: {:?}",
            last - start
        );
        assert!(!limiter.health().is_out());
    }
}

#[tokio::test(start_paused = true)]
async fn who_holds_a_slot_departs_in_its_time() {
    let store = Switched::default();
    let limiter = denying(&store);
    let waiting = join_all((0..2 * LIMIT).map(|_| limiter.acquire("a")));
    let waiting = tokio::spawn(waiting);
    sleep(Duration::from_millis(100)).await;
    store.switch(Mode::Refuses);
    assert_out(limiter.try_acquire("a").await);
    for answer in waiting.await.expect("no panic") {
        answer.expect("it had a slot");
    }
}

#[tokio::test(start_paused = true)]
async fn one_part_that_is_out_is_no_concern_of_another() {
    let store = Switched::default();
    let limiter = denying(&store);
    store.switch(Mode::Refuses);
    assert_out(limiter.try_acquire("a").await);
    assert!(
        limiter
            .try_acquire("other")
            .await
            .expect("it works")
            .is_granted()
    );
    assert!(limiter.health().is_out());
    assert_eq!(limiter.health().shards_out(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_loses_its_slot_meanwhile_waits_no_longer_than_it_would() {
    let window = Duration::from_secs(10);
    let bounds = [(None, 5), (Some(Duration::from_secs(15)), 15)];
    for (max_wait, seconds) in bounds {
        let store = Switched::default();
        let limiter = Limiter::builder().quota(Quota::new(1, window));
        let limiter = limiter.store(store.clone()).build();
        let limiter = limiter.expect("a valid policy");
        limiter.acquire("a").await.expect("the first");
        let start = Instant::now();
        let acquire = match max_wait {
            Some(max_wait) => limiter.acquire("a").max_wait(max_wait),
            None => limiter.acquire("a"),
        };
        let waiting = tokio::spawn(acquire);
        sleep(Duration::from_millis(100)).await;
        store.switch(Mode::Refuses);
        // Its line knows that the store is out while it has a slot.
        assert_out(limiter.acquire("b").max_wait(Duration::ZERO).await);
        assert_out(limiter.acquire("a").max_wait(Duration::ZERO).await);
        let pause = limiter.pause("a", start + 2 * window);
        pause.await.expect_err("the store is out");
        let answer = timeout(window * 3, waiting).await.expect("an end to it");
        assert_out(answer.expect("no panic"));
        let waited = start.elapsed().as_secs();
        assert!(waited.abs_diff(seconds) <= 1, "{max_wait:?}: {waited} s");
    }
}
