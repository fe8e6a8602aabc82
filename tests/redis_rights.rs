//! What a user of the server has to be allowed to: no more than the documentation says.

mod support;

use std::time::Duration;

use support::redis_server::RedisServer;
use support::rights::do_everything;
use tower_throttle::store::{RedisStore, Store};
use tower_throttle::{Limiter, LimiterBuilder, Quota};

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
    do_everything(&store).await;
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
