//! The primary that sentinels name, before and after a failover.

use tower_throttle::store::RedisStore;

use crate::redis_deployments::promises::{self, LONG};
use support::errors::{assert_readable, bounded, everything};
use support::sentinel::{NAME, Sentinels};
use support::spend::{spend, under};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_sentinels_name_keeps_all_promises() {
    let sentinels = Sentinels::start();
    let connect = async |primary: &str| {
        let store = RedisStore::connect_sentinel(sentinels.urls(), primary);
        bounded(store).await.map(|it| it.timeout(LONG))
    };
    promises::keeps_all(async || connect(NAME).await.expect("a connection")).await;

    // The URL of the primary has the user and the database of the servers.
    for server in &sentinels.servers {
        server.user(&["+@all"]);
    }
    let of = |user: &str| format!("redis://{user}@{NAME}/4");
    let store = connect(&of("user:secret")).await.expect("a connection");
    spend(&store, under(&["10/h"]), "a", 1).await;
    let info = sentinels.servers[0].command::<String>(&["INFO", "keyspace"]);
    assert!(info.contains("db4:keys=1,"), "{info}");
    for wrong in [&*of("user:wrong"), "unknown", "redis://["] {
        let error = connect(wrong).await.expect_err("no such primary");
        assert_readable(&error);
        let text = everything(&error);
        assert!(!text.contains("wrong"), "{text}");
    }
}
