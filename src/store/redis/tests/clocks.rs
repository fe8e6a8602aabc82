//! By which clock an answer is.

use redis::aio::ConnectionManager;

use super::support::redis_server::RedisServer;
use crate::clock::UNTOLD;
use crate::key::Key;
use crate::limiter::Limiter;
use crate::quota::Quota;
use crate::store::{RedisStore, Reserve, Store as _};

async fn clock(store: &RedisStore) -> Option<u64> {
    let builder = Limiter::builder().quota(Quota::per_hour(1_000));
    let (key, policy) = (Key::from("a"), builder.build().unwrap().policy());
    let answer = store.reserve(&Reserve::new(&key, &policy)).await;
    answer.ok().map(|reserved| reserved.clock.connection)
}

async fn next_clock(store: &RedisStore) -> u64 {
    loop {
        if let Some(clock) = clock(store).await {
            return clock;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn answers_by_one_connection_are_by_one_clock_and_those_by_the_next_by_another() {
    let server = RedisServer::start();
    let connect = async || RedisStore::connect(&server.url()).await.unwrap();
    let stores = [connect().await, connect().await];
    let first = [next_clock(&stores[0]).await, next_clock(&stores[1]).await];
    assert_ne!(first[0], first[1]);
    assert_eq!(next_clock(&stores[0].clone()).await, first[0]);
    server.command::<usize>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert!(!first.contains(&next_clock(&stores[0]).await));

    let plain = connect().await.scripting(false).unwrap();
    let of_plain = next_clock(&plain).await;
    assert_eq!(next_clock(&plain).await, of_plain);
    assert!(!first.contains(&of_plain));
}

/// A manager does not say when it connects anew.
#[tokio::test]
async fn no_two_answers_of_a_manager_are_known_to_be_by_one_clock() {
    let server = RedisServer::start();
    let manager = ConnectionManager::new(server.client()).await.unwrap();
    let store = RedisStore::from(manager);
    assert_eq!(next_clock(&store).await, UNTOLD);
    let connection = server.client().get_multiplexed_async_connection().await;
    let store = RedisStore::from(connection.unwrap());
    assert_eq!(next_clock(&store).await, next_clock(&store).await);
}
