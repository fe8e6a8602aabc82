//! An outage costs one probe for each pause, however many requests there are.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::Outage;
use tower_throttle::test_util::Fault;

use super::{assert_out, fail, limiter, recover, store};

#[tokio::test(start_paused = true)]
async fn a_store_that_is_out_is_probed_once_for_each_pause() {
    for outage in [Outage::Deny, Outage::Allow, Outage::Local { share: 0.5 }] {
        let store = store();
        let limiter = limiter(&store, outage);
        fail(&store, Fault::Unreachable);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(30) {
            let requests = (0..20).map(|key| {
                let acquire = limiter.acquire(key.to_string());
                acquire.max_wait(Duration::from_millis(100))
            });
            join_all(requests).await;
            sleep(Duration::from_millis(100)).await;
        }
        let (pings, calls) = (store.pings(), store.calls());
        assert!(calls <= 20, "{outage:?}: {calls} calls");
        // At least half a second apart and at most a second, after the first few.
        assert!((28..=70).contains(&pings), "{outage:?}: {pings} pings");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_only_pings_is_called_as_rarely() {
    let store = store();
    let limiter = limiter(&store, Outage::Deny);
    fail(&store, Fault::ReadOnly);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        assert_out(limiter.acquire("a").await);
    }
    let (pings, calls) = (store.pings(), store.calls());
    assert!(calls <= 150 && pings <= 150, "{calls} calls, {pings} pings");
}

#[tokio::test(start_paused = true)]
async fn health_reports_the_outage_its_cause_and_its_end() {
    let store = store();
    let limiter = limiter(&store, Outage::Deny);
    assert!(!limiter.health().is_out() && limiter.health().since().is_none());
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    fail(&store, Fault::Unreachable);
    assert_out(limiter.try_acquire("a").await);
    sleep(Duration::from_secs(60)).await;
    let health = limiter.health();
    assert!(health.is_out() && health.since() >= Some(start));
    assert!(health.since() < Some(start + Duration::from_secs(1)));
    let error = health.error().expect("it is out");
    assert_eq!(error.to_string(), "the store cannot be reached");
    // Without any request.
    recover(&store);
    sleep(Duration::from_secs(2)).await;
    assert!(!limiter.health().is_out());
}
