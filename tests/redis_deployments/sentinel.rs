//! The primary that sentinels name, before and after a failover.

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
