//! The primary that sentinels name, before and after a failover.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_throttle::store::RedisStore;

use crate::redis_deployments::promises::{self, LONG};
use support::errors::{assert_readable, bounded, everything};
use support::sentinel::{NAME, Sentinels};

async fn connect(sentinels: &Sentinels) -> RedisStore {
    let store = bounded(RedisStore::connect_sentinel(sentinels.urls(), NAME)).await;
    store.expect("a connection").timeout(LONG)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_sentinels_name_keeps_all_promises() {
    let sentinels = Sentinels::start();
    promises::keeps_all(async || connect(&sentinels).await).await;
}

#[tokio::test]
async fn the_url_of_the_primary_has_the_user_and_the_database_of_the_servers() {
    let sentinels = Sentinels::start();
    for server in &sentinels.servers {
        server.command::<()>(&[
            "ACL", "SETUSER", "user", "on", ">hunter2", "~*", "&*", "+@all",
        ]);
    }
    let of = |user: &str| format!("redis://{user}@{NAME}/4");
    let right = of("user:hunter2");
    let store = RedisStore::connect_sentinel(sentinels.urls(), &right);
    let store = bounded(store).await.expect("a connection").timeout(LONG);
    promises::limiter(&store)
        .acquire("a")
        .await
        .expect("a permit");
    let info = sentinels.servers[0].command::<String>(&["INFO", "keyspace"]);
    assert!(info.contains("db4:keys=1,"), "{info}");

    let wrong = [
        of("user:wrong"),
        "unknown".to_owned(),
        "redis://[".to_owned(),
    ];
    for primary in wrong {
        let store = RedisStore::connect_sentinel(sentinels.urls(), &primary);
        let error = bounded(store).await.expect_err("no such primary");
        assert_readable(&error);
        assert!(
            !everything(&error).contains("wrong"),
            "{}",
            everything(&error)
        );
    }
    let none: [&str; 0] = [];
    assert_readable(
        &RedisStore::connect_sentinel(none, NAME)
            .await
            .expect_err("no sentinels"),
    );
}

/// Calls until the store answers again.
async fn recovers(store: &RedisStore) {
    let deadline = Instant::now() + 3 * LONG;
    let limiter = promises::limiter(store);
    while let Err(error) = bounded(limiter.acquire("a")).await {
        assert!(Instant::now() < deadline, "{error:?}");
        assert_readable(&error);
        sleep(Duration::from_millis(20)).await;
    }
}

async fn fails_over(scripting: bool, how: impl Fn(&mut Sentinels, usize)) {
    let mut sentinels = Sentinels::start();
    let connect = async || {
        let store = connect(&sentinels).await.timeout(Duration::from_secs(2));
        store.scripting(scripting).expect("its own connections")
    };
    let stores = [connect().await, connect().await];
    for store in &stores {
        recovers(store).await;
    }
    let primary = sentinels.primary();
    how(&mut sentinels, primary);
    sentinels.fails_over(primary);
    for store in &stores {
        recovers(store).await;
    }
    let next = sentinels.primary();
    let info = sentinels.servers[next].command::<String>(&["INFO", "commandstats"]);
    assert!(info.contains("cmdstat_evalsha:") || !scripting, "{info}");
    promises::never_exceeds(&stores, &["b"]).await;
    promises::pauses_reach_all(&stores, "c").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_killed_is_replaced() {
    fails_over(true, |sentinels, primary| {
        sentinels.servers[primary].kill9()
    })
    .await;
}
