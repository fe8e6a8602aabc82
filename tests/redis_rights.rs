//! What a user of the server has to be allowed to: no more than the documentation says.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use support::redis_server::RedisServer;
use support::slots::slots;
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Release, Store, Word};
use tower_throttle::{Algorithm, Limiter, LimiterBuilder, Quota, WindowStart};

const LONG: Duration = Duration::from_secs(600);

/// As the documentation of the store lists them.
const DOCUMENTED: [&str; 17] = [
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
    "+publish",
    "+subscribe",
    "+ping",
    "&throttle:pauses",
];

/// What it takes to tell others of a pause, and to be told.
const NOTICES: usize = 13;

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

async fn connect(server: &RedisServer, rights: &[&str]) -> RedisStore {
    let user = [
        "ACL",
        "SETUSER",
        "limited",
        "on",
        ">hunter2",
        "resetchannels",
        "~throttle:*",
    ];
    server.command::<()>(&[&user[..], rights].concat());
    let url = server.url().replace("redis://", "redis://limited:hunter2@");
    let store = RedisStore::connect(&url).await.expect("a connection");
    store.timeout(Duration::from_secs(30))
}

#[tokio::test]
async fn the_documented_commands_are_all_that_a_user_needs() {
    let server = RedisServer::start();
    let store = connect(&server, &DOCUMENTED).await;
    assert!(store.is_listening());
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
        let word = Word::Pause {
            span: 1_000_000,
            departed: u64::MAX,
        };
        let notice = store.heed(&key, &policy, word).await;
        assert!(notice.expect("the right to it").until > 0);
        store.reset(&key, &policy).await.expect("the right to it");
    }
}

#[tokio::test]
async fn who_may_not_publish_or_subscribe_pauses_all_the_same() {
    let server = RedisServer::start();
    let store = connect(&server, &DOCUMENTED[..NOTICES]).await;
    assert!(!store.is_listening());
    let limiter = quota(5).store(store).build().expect("a valid policy");
    let until = tokio::time::Instant::now() + LONG;
    limiter.pause("a", until).await.expect("a pause");
    let decision = limiter.try_acquire("a").await.expect("an answer");
    assert!(!decision.is_granted());
}
