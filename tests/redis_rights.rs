//! What a user of the server has to be allowed to: no more than the documentation says.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use support::redis_server::RedisServer;
use support::slots::slots;
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Release, Store};
use tower_throttle::{Algorithm, Limiter, LimiterBuilder, Quota, WindowStart};

const LONG: Duration = Duration::from_secs(600);

/// As the documentation of the store lists them.
const DOCUMENTED: [&str; 13] = [
    "+evalsha",
    "+script|load",
    "+time",
    "+exists",
    "+get",
    "+mget",
    "+getrange",
    "+strlen",
    "+set",
    "+psetex",
    "+setrange",
    "+pexpire",
    "+del",
];

fn quota(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::new(limit, LONG))
}

fn of_all_kinds() -> LimiterBuilder {
    let first = WindowStart::FirstRequest;
    let counted_by = |algorithm| Quota::new(10, LONG).algorithm(algorithm);
    [
        Algorithm::SlidingBuckets { buckets: 10 },
        Algorithm::Spacing,
        Algorithm::LeakyBucket { capacity: 1_000 },
        Algorithm::Gcra { burst: 5 },
        Algorithm::FixedWindow { start: first },
    ]
    .into_iter()
    .fold(quota(5), |builder, it| builder.quota(counted_by(it)))
}

#[tokio::test]
async fn the_documented_commands_are_all_that_a_user_needs() {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "limited", "on", ">hunter2", "~throttle:*"];
    server.command::<()>(&[&user[..], &DOCUMENTED].concat());
    let url = server.url().replace("redis://", "redis://limited:hunter2@");
    let store = RedisStore::connect(&url).await.expect("a connection");
    let store = store.timeout(Duration::from_secs(30));
    // Short logs and long ones, of which the latter become rings that are written anew and in part.
    for builder in [quota(3), quota(16), quota(100), of_all_kinds()] {
        let policy = builder.build().expect("a valid policy").policy();
        for count in [1, 12, 90, 3] {
            let keys: Vec<_> = (0..20).map(|key| Key::from(format!("key {key}"))).collect();
            let reserves = keys.iter().map(|key| slots(&store, key, &policy, count));
            for (key, mut taken) in keys.iter().zip(join_all(reserves).await) {
                taken.truncate(taken.len() / 2);
                let release = Release::new(key, &policy, &taken);
                store.release(&release).await.expect("the right to it");
            }
        }
        let key = Key::from("key 1");
        store.reset(&key, &policy).await.expect("the right to it");
    }
}
