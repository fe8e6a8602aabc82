//! What a caller of a Redis store may ask for in one call, down to nothing.

mod support;

use std::time::Duration;

use support::redis_server::RedisServer;
use tower_throttle::key::Key;
use tower_throttle::store::{Ask, RedisStore, Reserve, Store};
use tower_throttle::{Limiter, Quota};

const LONG: Duration = Duration::from_secs(600);

/// How many outcomes there are of requests in groups of such sizes, and how many more may depart.
async fn answered(store: &RedisStore, limit: u32, counts: &[u32]) -> (usize, u32) {
    let builder = Limiter::builder().quota(Quota::new(limit, LONG));
    let policy = builder.build().expect("a valid policy").policy();
    let asks: Vec<_> = counts
        .iter()
        .map(|&count| Ask {
            count,
            cost: 1,
            max_wait: u64::MAX,
        })
        .collect();
    let key = Key::from("a");
    let mut reserve = Reserve::new(&key, &policy);
    reserve.asks = &asks;
    let peeked = store.peek(&reserve).await.expect("an answer");
    let reserved = store.reserve(&reserve).await.expect("an answer");
    assert_eq!(peeked.outcomes().len(), reserved.outcomes().len());
    (reserved.outcomes().len(), reserved.remaining())
}

#[tokio::test]
async fn groups_of_no_requests_are_answered_as_if_they_were_not_there() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await;
    let store = store.expect("a connection").timeout(LONG);
    for scripting in [true, false] {
        let store = store
            .clone()
            .scripting(scripting)
            .expect("a way to connect");
        for limit in [10, 100] {
            server.command::<()>(&["FLUSHALL"]);
            assert_eq!(answered(&store, limit, &[]).await, (0, limit));
            assert_eq!(answered(&store, limit, &[0]).await, (0, limit));
            assert_eq!(answered(&store, limit, &[0, 2, 0, 1]).await, (3, limit - 3));
            assert_eq!(answered(&store, limit, &[0, 0]).await, (0, limit - 3));
            assert_eq!(answered(&store, limit, &[1, 0]).await, (1, limit - 4));
        }
    }
}
