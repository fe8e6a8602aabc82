//! What has to hold wherever the store is.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::store::{RedisStore, Store as _};
use tower_throttle::test_util::history::History;
use tower_throttle::test_util::store_contract;
use tower_throttle::{Limiter, Quota};

use crate::support::errors::bounded;

/// What a machine may need that does many other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const WINDOW: Duration = Duration::from_millis(500);
pub(crate) const LIMIT: u32 = 10;

/// What lies between a departure and the moment at which a test takes note of it.
const BUFFER: Duration = Duration::from_millis(200);

pub(crate) fn limiter(store: &RedisStore) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    let builder = builder.buffer(BUFFER).store(store.clone());
    builder.build().expect("a valid policy")
}

/// All that this crate promises, of a store that `connect` makes anew.
pub(crate) async fn keeps_all(connect: impl AsyncFn() -> RedisStore) {
    let stores = [connect().await, connect().await].map(|it| it.timeout(PATIENCE));
    never_exceeds(&stores, &["a", "b", "c", "d"]).await;
    hears_pauses(&stores).await;
    let [store, _] = stores;
    store_contract(async || store.clone()).await;
}

/// Two limiters of several callers each, on the same keys.
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
        let mut history = History::new();
        let of_key = departures.iter().filter(|it| it.0 == *key);
        of_key.for_each(|(_, at)| history.push(*at));
        assert_eq!(history.len(), 2 * EACH);
        history.assert_at_most(LIMIT.into(), WINDOW);
    }
}

/// Who waits learns of a pause that another has set.
pub(crate) async fn hears_pauses(stores: &[RedisStore; 2]) {
    let deadline = Instant::now() + PATIENCE;
    while !stores.iter().all(|it| it.is_listening()) {
        assert!(Instant::now() < deadline, "nobody listens");
        sleep(Duration::from_millis(20)).await;
    }
    let second = Duration::from_secs(1);
    let [pausing, waiting] = stores.each_ref().map(|store| {
        let builder = Limiter::builder().quota(Quota::new(1, 3 * second));
        let builder = builder.buffer(BUFFER).store(store.clone());
        builder.build().expect("a valid policy")
    });
    bounded(waiting.acquire("pausing")).await.expect("a permit");
    let waiter = tokio::spawn({
        let waiting = waiting.clone();
        async move {
            let permit = bounded(waiting.acquire("pausing")).await;
            permit.expect("a permit");
            Instant::now()
        }
    });
    // By now it has its slot, three seconds from now.
    sleep(second).await;
    let until = Instant::now() + 4 * second;
    let pause = pausing.pause("pausing", until);
    bounded(pause).await.expect("a pause");
    let departed = waiter.await.expect("no panic");
    assert!(departed >= until, "{:?} too early", until - departed);
}
