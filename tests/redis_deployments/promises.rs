//! The promises that hold for every deployment.

use support::load::Load;
use support::progress::most_at_once;

use crate::prelude::*;

/// Only a defect takes longer.
pub(crate) const LONG: Duration = Duration::from_secs(20);

const WINDOW: Duration = Duration::from_millis(500);
const LIMIT: u32 = 10;

pub(crate) fn limiter(store: &RedisStore) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    build(builder.store(store.clone()))
}

/// Checks all promises on stores that `connect` makes, with scripts and without.
pub(crate) async fn keeps_all(connect: impl AsyncFn() -> RedisStore) {
    join_all([true, false].map(async |scripting| {
        let connect = async || {
            let store = connect().await.timeout(LONG);
            let store = store.prefix(&format!("throttle:{scripting}"));
            let store = store.expect("a prefix").scripting(scripting);
            store.expect("its own connections")
        };
        let stores = [connect().await, connect().await];
        keeps_these(&stores).await;
    }))
    .await;
}

pub(crate) async fn keeps_these(stores: &[RedisStore; 2]) {
    never_exceeds(stores, &["a", "b", "c", "d"]).await;
    limits_requests_in_progress(stores).await;
    // Without a nudge, the end of this pause would be noticed after a quarter of it.
    pauses_reach_all(stores, 30 * LONG).await;
}

pub(crate) async fn never_exceeds(stores: &[RedisStore; 2], keys: &[&'static str]) {
    let limiters = stores.each_ref().map(limiter);
    let loads = keys.iter().map(async |key| {
        let load = Load::of(key, &limiters);
        load.goes_on(3 * LIMIT as usize).await;
        load.history().await.assert_at_most(LIMIT.into(), WINDOW);
    });
    join_all(loads).await;
}

/// Two limiters with several callers each, whose work takes 20 ms.
async fn limits_requests_in_progress(stores: &[RedisStore; 2]) {
    let start = Instant::now();
    let limiters = stores.each_ref().map(|store| {
        let builder = Limiter::builder().quota(Quota::concurrent(3));
        build(builder.store(store.clone()))
    });
    let works = limiters.iter().cycle().take(40).map(async |limiter| {
        let work = async || {
            let from = start.elapsed();
            sleep(Duration::from_millis(20)).await;
            (from, start.elapsed())
        };
        bounded(limiter.run("busy", work)).await.expect("a place")
    });
    assert_eq!(most_at_once(&join_all(works).await), 3);
    // The last places are released a moment later.
    let held = async || {
        let snapshot = limiters[0].peek("busy").await.expect("a snapshot");
        snapshot.places().expect("a limit").held
    };
    eventually("no place is held", async || held().await == 0).await;
}

/// A request that waits in one process keeps to the pause of another, until that ends it.
pub(crate) async fn pauses_reach_all(stores: &[RedisStore; 2], pause: Duration) {
    let [one, other] = stores
        .each_ref()
        .map(|store| build(under(&["100/s"]).store(store.clone())));
    // The other process knows the key, and its subscription has begun.
    bounded(other.acquire("paused")).await.expect("a permit");
    let pause = one.pause("paused", Instant::now() + pause);
    bounded(pause).await.expect("a pause");
    let waiting = tokio::spawn(other.acquire("paused"));
    // Departures that were granted before are over by then.
    sleep(SECOND).await;
    assert!(!waiting.is_finished(), "the key is paused");
    attempt(&other, "paused", 1)
        .await
        .expect_err("it is paused");
    let resume = bounded(one.resume("paused")).await;
    resume.expect("the end of the pause");
    let departed = timeout(LONG / 2, waiting).await.expect("in time");
    departed.expect("no panic").expect("a permit");
    let departs = async || attempt(&other, "paused", 1).await.is_ok();
    eventually("a request departs at once", departs).await;
}
