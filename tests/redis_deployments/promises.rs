//! The promises that hold for every deployment.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::Limiter;
use tower_throttle::Quota;
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;

use support::errors::bounded;
use support::progress::most_at_once;
use support::spend::{spend_by, under};

/// Only a defect takes longer.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) const WINDOW: Duration = Duration::from_millis(500);
pub(crate) const LIMIT: u32 = 10;

/// The time between a departure and the moment at which a test records it.
const BUFFER: Duration = Duration::from_millis(200);

pub(crate) fn limiter(store: &RedisStore) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    let builder = builder.buffer(BUFFER).store(store.clone());
    builder.build().expect("a valid policy")
}

/// Checks all promises on stores that `connect` makes, with scripts and without.
pub(crate) async fn keeps_all(connect: impl AsyncFn() -> RedisStore) {
    for scripting in [true, false] {
        let connect = async || {
            let store = connect().await.timeout(LONG);
            let store = store
                .prefix(&format!("throttle:{scripting}"))
                .expect("a prefix");
            store.scripting(scripting).expect("its own connections")
        };
        let stores = [connect().await, connect().await];
        never_exceeds(&stores, &["a", "b", "c", "d"]).await;
        limits_requests_in_progress(&stores, "busy").await;
        pauses_reach_all(&stores, "paused").await;
        counts_by_every_algorithm(&stores[0]).await;
    }
}

/// Two limiters with several callers each, on the same keys.
pub(crate) async fn never_exceeds(stores: &[RedisStore; 2], keys: &[&str]) {
    const EACH: usize = 15;
    let limiters = stores.each_ref().map(limiter);
    let start = Instant::now();
    let departures = keys.iter().flat_map(|&key| {
        let both = limiters.iter();
        both.flat_map(move |limiter| {
            (0..EACH).map(move |_| {
                let limiter = limiter.clone();
                async move {
                    let permit = bounded(limiter.acquire(key)).await;
                    permit.expect("a permit");
                    (key, start.elapsed())
                }
            })
        })
    });
    let departures = join_all(departures).await;
    for key in keys {
        let of_key = departures.iter().filter(|it| it.0 == *key);
        let history: History = of_key.map(|(_, at)| *at).collect();
        assert_eq!(history.len(), 2 * EACH);
        history.assert_at_most(LIMIT.into(), WINDOW);
    }
}

/// Two limiters with several callers each, whose work takes 20 ms.
pub(crate) async fn limits_requests_in_progress(stores: &[RedisStore; 2], key: &str) {
    const EACH: usize = 20;
    const PLACES: usize = 3;
    let start = Instant::now();
    let limiters = stores.each_ref().map(|store| {
        let quota = Quota::concurrent(PLACES as u32);
        let builder = Limiter::builder().quota(quota).store(store.clone());
        builder.build().expect("a valid policy")
    });
    let works = (0..2 * EACH).map(|nth| {
        let limiter = &limiters[nth % 2];
        async move {
            let work = async || {
                let from = start.elapsed();
                sleep(Duration::from_millis(20)).await;
                (from, start.elapsed())
            };
            bounded(limiter.run(key, work)).await.expect("a place")
        }
    });
    let works = join_all(works).await;
    assert_eq!(most_at_once(&works), PLACES, "{works:?}");
    // The last places are released a moment later.
    while let places = limiters[0].peek(key).await.expect("a snapshot").places()
        && places.expect("a limit").held > 0
    {
        assert!(start.elapsed() < LONG, "{places:?}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// A request that waits in one process keeps to the pause of another, until a third ends it.
pub(crate) async fn pauses_reach_all(stores: &[RedisStore; 2], key: &str) {
    let [one, other] = stores.each_ref().map(|store| {
        let builder = under(&["100/s"]).store(store.clone());
        builder.build().expect("a valid policy")
    });
    let pause = one.pause(key, Instant::now() + 3 * LONG);
    bounded(pause).await.expect("a pause");
    let waiting = tokio::spawn({
        let (other, key) = (other.clone(), key.to_owned());
        async move { other.acquire(key).await.map(|_| Instant::now()) }
    });
    sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "the key is paused");
    let before = Instant::now();
    bounded(one.resume(key))
        .await
        .expect("the end of the pause");
    // A quarter of the expected wait, if no nudge arrives.
    let departed = tokio::time::timeout(LONG, waiting).await.expect("in time");
    assert!(departed.expect("no panic").expect("a permit") >= before);
}

async fn counts_by_every_algorithm(store: &RedisStore) {
    for (text, at_once) in [
        ("2/h", 2),
        ("200/h", 200),
        ("2000/h", 2_000),
        ("2/h sliding-buckets buckets=10", 2),
        ("2/h fixed-window start=first-request", 2),
        ("2/h gcra burst=3", 3),
        ("2/h spacing", 1),
        ("2/h leaky-bucket capacity=3", 1),
    ] {
        let limiter = under(&[text, "5000/d"]).store(store.clone()).build();
        let limiter = limiter.expect("a valid policy");
        spend_by(&limiter, text, at_once).await;
        let decision = bounded(limiter.try_acquire(text))
            .await
            .expect("a decision");
        assert!(!decision.is_granted(), "{text}");
    }
}
