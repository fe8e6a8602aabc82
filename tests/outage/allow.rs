//! `Outage::Allow`: requests depart uncounted.

use std::time::Duration;

use futures_util::future::join_all;
use support::spend::attempt;
use tokio::time::{Instant, sleep};
use tower_throttle::Outage;
use tower_throttle::test_util::Fault;

use super::{LIMIT, fail, limiter, recover, store};

#[tokio::test(start_paused = true)]
async fn everything_departs_while_the_store_is_out_and_the_limit_holds_once_it_is_back() {
    let store = store();
    let limiter = limiter(&store, Outage::Allow);
    fail(&store, Fault::Unreachable);
    let start = Instant::now();
    for cost in [1, LIMIT] {
        for answer in join_all((0..1_000).map(|_| limiter.acquire("a").cost(cost))).await {
            let permit = answer.expect("everything departs");
            assert!(permit.is_valid() && !permit.is_counted());
        }
    }
    attempt(&limiter, "a", 1).await.expect("everything departs");
    assert!(start.elapsed() < Duration::from_millis(10));
    recover(&store);
    sleep(Duration::from_secs(2)).await;
    assert!(!limiter.health().is_out());
    for nth in 0..2 * LIMIT {
        assert_eq!(attempt(&limiter, "a", 1).await.is_ok(), nth < LIMIT);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_in_this_process() {
    let store = store();
    let limiter = limiter(&store, Outage::Allow);
    fail(&store, Fault::Unreachable);
    limiter.acquire("a").await.expect("everything departs");
    let until = Instant::now() + Duration::from_secs(3);
    let pause = limiter.pause("a", until).await;
    pause.expect_err("the store does not get it");
    limiter.acquire("a").await.expect("after the pause");
    assert!(Instant::now() >= until);
}
