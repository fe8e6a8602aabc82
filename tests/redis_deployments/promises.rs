//! The promises that hold for every deployment.

use tower_throttle_store_contract::store_contract;

use crate::prelude::*;

/// Only a defect takes longer.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) async fn keeps_all(connect: impl AsyncFn() -> RedisStore) {
    join_all([true, false].map(async |scripting| {
        let connect = async || {
            let store = connect().await.timeout(LONG);
            let store = store.prefix(&format!("throttle:{scripting}"));
            let store = store.expect("a prefix").scripting(scripting);
            store.expect("its own connections")
        };
        keeps_these(&[connect().await, connect().await]).await;
    }))
    .await;
}

pub(crate) async fn keeps_these(stores: &[RedisStore; 2]) {
    store_contract(async || stores[0].clone()).await;
    // Without a nudge, the end of this pause would be noticed after a third of it.
    pauses_reach_all(stores, 30 * LONG).await;
    cancelled_requests_hold_up_no_process(stores).await;
}

/// A request that waits in one process keeps to the pause of another, until that ends it.
pub(crate) async fn pauses_reach_all(stores: &[RedisStore; 2], pause: Duration) {
    let limiter = |store: &RedisStore| build(under(&["100/s"]).store(store.clone()));
    let [one, other] = stores.each_ref().map(limiter);
    // The other process knows the key, and its subscription has begun.
    bounded(other.acquire("paused")).await.expect("a permit");
    let pause = one.pause("paused", Instant::now() + pause);
    bounded(pause).await.expect("a pause");
    let waiting = tokio::spawn(other.acquire("paused"));
    // Departures that were granted before are over by then.
    sleep(SECOND).await;
    assert!(!waiting.is_finished(), "the key is paused");
    let refused = attempt(&other, "paused", 1).await;
    refused.expect_err("it is paused");
    let resume = bounded(one.resume("paused")).await;
    resume.expect("the end of the pause");
    let departed = timeout(LONG / 2, waiting).await.expect("in time");
    departed.expect("no panic").expect("a permit");
    let departs = async || attempt(&other, "paused", 1).await.is_ok();
    eventually("a request departs at once", departs).await;
}

/// A process that expects to wait for a minute calls at once after the requests of two others were cancelled.
async fn cancelled_requests_hold_up_no_process(stores: &[RedisStore; 2]) {
    let limiter = |nth: usize| build(under(&["1/s"]).store(stores[nth].clone()));
    let [one, other, last] = [0, 0, 1].map(limiter);
    let mut cancelled = JoinSet::new();
    for limiter in [&one, &other].repeat(30) {
        cancelled.spawn(limiter.acquire("cancelled"));
    }
    sleep(SECOND).await;
    let waiting = tokio::spawn(last.acquire("cancelled"));
    sleep(SECOND).await;
    cancelled.shutdown().await;
    // Without a nudge, it would call after a third of its wait.
    let departed = timeout(LONG / 2, waiting).await.expect("in time");
    departed.expect("no panic").expect("a permit");
}
