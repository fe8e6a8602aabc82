//! `Outage::Deny`, the default: nothing departs, and requests that wait go on when the store is back.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::test_util::{FailingStore, Fault};
use tower_throttle::{Limiter, Outage, Quota};

use crate::telemetry::stores::Sharded;

use super::{FAULTS, LIMIT, assert_out, fail, limiter, recover, store};

fn denying(store: &FailingStore) -> Limiter {
    limiter(store, Outage::Deny)
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_bound_waits_for_five_seconds() {
    for fault in FAULTS {
        let store = store();
        let limiter = denying(&store);
        fail(&store, fault);
        for requests in [100, 1] {
            let start = Instant::now();
            for answer in join_all((0..requests).map(|_| limiter.acquire("a"))).await {
                assert_out(answer);
            }
            let waited = start.elapsed();
            let (least, most) = (Duration::from_secs(5), Duration::from_millis(6_100));
            assert!(waited >= least && waited <= most, "{fault:?}: {waited:?}");
        }
        recover(&store);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(limiter.queues(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_bound_waits_until_then() {
    for fault in FAULTS {
        let store = store();
        let limiter = denying(&store);
        fail(&store, fault);
        // The first time, the limiter does not know of the outage yet.
        for _ in 0..2 {
            let waiting = [200, 2_000, 20_000].map(|millis| {
                let bound = Duration::from_millis(millis);
                let acquire = limiter.acquire("a").max_wait(bound);
                async move {
                    let start = Instant::now();
                    assert_out(acquire.await);
                    let waited = start.elapsed();
                    let most = bound + Duration::from_millis(100);
                    assert!(waited >= bound && waited <= most, "{fault:?}: {waited:?}");
                }
            });
            join_all(waiting).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_wait_fails_at_once() {
    let store = store();
    let limiter = denying(&store);
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
        let limiter = denying(&store);
        fail(&store, fault);
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
        recover(&store);
        let departed = join_all(waiting).await.into_iter();
        let departed: Vec<_> = departed.map(|it| it.expect("no panic")).collect();
        assert!(departed.is_sorted(), "{departed:?}");
        let last = departed.last().expect("there are some").0 - start;
        // 3.5 s of outage, a second until a probe, and three windows.
        assert!(last < Duration::from_secs(8), "{fault:?}: {last:?}");
        assert!(!limiter.health().is_out());
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_out_does_not_concern_the_others() {
    let store = Sharded::default();
    let quota = Quota::new(LIMIT, Duration::from_secs(1));
    let limiter = Limiter::builder().quota(quota).store(store.clone());
    let limiter = limiter.build().expect("a valid policy");
    for (key, other) in [("a", "b"), ("b", "a")] {
        store.out(&[key]);
        assert_out(limiter.try_acquire(key).await);
        let decision = limiter.try_acquire(other).await;
        assert!(decision.expect("it works").is_granted());
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
