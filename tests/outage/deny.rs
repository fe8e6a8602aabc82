//! `Outage::Deny`, the default: nothing departs, and requests that wait go on when the store is back.

use std::time::Duration;

use futures_util::future::join_all;
use support::spend::{attempt, build};
use tokio::time::{Instant, sleep};
use tower_throttle::test_util::Fault;
use tower_throttle::{Limiter, Outage, Quota};

use crate::telemetry::stores::Sharded;

use super::{FAULTS, LIMIT, WINDOW, assert_out, fail, last, limiter, queue, recover, store};

#[tokio::test(start_paused = true)]
async fn a_request_waits_until_its_bound_or_for_five_seconds() {
    for fault in FAULTS {
        let store = store();
        let limiter = limiter(&store, Outage::Deny);
        fail(&store, fault);
        // The first time, the limiter does not know of the outage yet.
        for _ in 0..2 {
            let bounds = [Some(200), Some(2_000), Some(20_000)];
            let waiting = bounds.into_iter().chain([None; 100]).map(async |bound| {
                let (start, acquire) = (Instant::now(), limiter.acquire("a"));
                let (bound, slack) = match bound.map(Duration::from_millis) {
                    Some(bound) => {
                        assert_out(acquire.max_wait(bound).await);
                        (bound, 100)
                    }
                    None => {
                        assert_out(acquire.await);
                        (Duration::from_secs(5), 1_100)
                    }
                };
                let most = bound + Duration::from_millis(slack);
                let waited = start.elapsed();
                assert!((bound..=most).contains(&waited), "{fault:?}: {waited:?}");
            });
            join_all(waiting).await;
        }
        recover(&store);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(limiter.queues(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_wait_fails_at_once() {
    let store = store();
    let limiter = limiter(&store, Outage::Deny);
    fail(&store, Fault::LostReply);
    assert_out(limiter.try_acquire("a").await);
    let start = Instant::now();
    for _ in 0..100 {
        assert_out(limiter.try_acquire("a").await);
        assert_out(limiter.acquire("a").max_wait(Duration::ZERO).await);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn when_the_store_is_back_all_go_on_in_their_order() {
    for fault in FAULTS {
        let store = store();
        let limiter = limiter(&store, Outage::Deny);
        fail(&store, fault);
        let start = Instant::now();
        let queue = queue(&limiter, 3 * LIMIT).await;
        sleep(Duration::from_secs(2)).await;
        recover(&store);
        let last = last(queue).await - start;
        // 3.5 s of outage, a second until a probe, and three windows.
        assert!(last < Duration::from_secs(8), "{fault:?}: {last:?}");
        assert!(!limiter.health().is_out());
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_out_does_not_concern_the_others() {
    let store = Sharded::default();
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    let limiter = build(builder.store(store.clone()));
    for (key, other) in [("a", "b"), ("b", "a")] {
        store.out(&[key]);
        assert_out(limiter.try_acquire(key).await);
        attempt(&limiter, other, 1).await.expect("it works");
        let health = limiter.health();
        assert!(health.is_out() && health.shards_out() == 1);
        let waiting = tokio::spawn(limiter.acquire(key));
        sleep(Duration::from_secs(3)).await;
        assert!(!waiting.is_finished());
        store.out(&[]);
        waiting.await.expect("no panic").expect("it is back");
        assert!(!limiter.health().is_out());
    }
}
