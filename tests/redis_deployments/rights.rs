//! The rights in the guide are those that a user needs, no more and no less.

use std::collections::HashMap;

use redis::Value;
use tower_throttle_store_contract::store_contract;

use crate::prelude::*;
use crate::redis_deployments::promises::{self, LONG};
use support::redis_server::{self, installed, redis_6_2, valkey};
use support::sentinel::{NAME, Sentinels};

const GUIDE: &str = include_str!("../../src/docs/redis.md");

/// The words of the line in the guide that creates this user.
fn documented(user: &str) -> Vec<&'static str> {
    let start = format!("ACL SETUSER {user} on >PASSWORD ");
    let line = GUIDE.lines().find(|line| line.starts_with(&start));
    line.expect("a line in the guide").split(' ').collect()
}

/// The additional rights in the row that starts with this.
pub(crate) fn additional(row: &str) -> Vec<String> {
    let start = format!("| {row}");
    let line = GUIDE.lines().rfind(|line| line.starts_with(&start));
    let cell = line.expect("a row in the guide").rsplit(" | ").next();
    let words = cell.expect("a last cell").trim_end_matches(" |");
    let words = words.trim_matches('`').split(' ');
    words.map(|word| word.replace("\\|", "|")).collect()
}

pub(crate) fn set_user(server: &RedisServer, user: &str, more: &[String]) {
    let more = more.iter().map(String::as_str);
    let words: Vec<_> = documented(user).into_iter().chain(more).collect();
    server.command::<()>(&words);
}

pub(crate) fn url_of(server: &RedisServer, user: &str) -> String {
    format!("redis://{user}:PASSWORD@127.0.0.1:{}/", server.port())
}

pub(crate) async fn connect(server: &RedisServer, user: &str) -> RedisStore {
    let store = redis_server::connect(&url_of(server, user)).await;
    let store = store.scripting(!user.ends_with("-plain"));
    store.expect("its own connections")
}

/// Calls everything. Panics if the server refuses a command, which `server` knows.
async fn do_everything(store: &RedisStore, server: &RedisServer) {
    server.command::<()>(&["ACL", "LOG", "RESET"]);
    store_contract(async || store.clone()).await;
    // A call without an answer is followed by a `PING`.
    let store = store.clone().timeout(Duration::from_millis(100));
    let limiter = build(under(&["3/h"]).store(store));
    server.sigstop();
    let late = limiter.try_acquire("late").await;
    late.expect_err("no answer in time");
    server.sigcont();
    let answers = async || limiter.try_acquire("late").await.is_ok();
    eventually("the server answers", answers).await;
    assert_nothing_refused(server);
}

/// The server logs what it refuses, but for what a client sends to set up a connection.
#[track_caller]
fn assert_nothing_refused(server: &RedisServer) {
    let log: Vec<HashMap<String, Value>> = server.command(&["ACL", "LOG"]);
    let allowed = ["client", "client|setinfo", "client|setname", "info"];
    let refused = log.iter().filter(|entry| match entry.get("object") {
        Some(Value::BulkString(object)) => allowed.iter().all(|it| it.as_bytes() != object),
        _ => false,
    });
    let refused: Vec<_> = refused.collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_in_the_guide_are_enough_and_no_more_than_is_used() {
    let binaries = [redis_6_2(), installed(), valkey()].into_iter();
    let cases = binaries.flat_map(|it| [(it.clone(), "throttle"), (it, "throttle-plain")]);
    join_all(cases.map(async |(binary, user)| {
        let server = RedisServer::start_as(binary, |_| Vec::new());
        set_user(&server, user, &[]);
        do_everything(&connect(&server, user).await, &server).await;
        let info = server.command::<String>(&["INFO", "commandstats"]);
        let words = documented(user).into_iter();
        for command in words.filter_map(|it| it.strip_prefix('+')) {
            let is_used = info.contains(&format!("cmdstat_{command}:"));
            assert!(is_used, "{command}: {info}");
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_number_takes_the_right_to_select_it() {
    let server = RedisServer::start();
    set_user(&server, "throttle", &[]);
    let url = url_of(&server, "throttle") + "7";
    let error = bounded(RedisStore::connect(&url)).await;
    assert!(!error.expect_err("no right to it").is_outage());
    set_user(&server, "throttle", &additional("a database number"));
    do_everything(&redis_server::connect(&url).await, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_takes_the_additional_rights_in_the_guide() {
    let cluster = Cluster::start();
    for user in ["throttle", "throttle-plain"] {
        let servers = cluster.servers.iter();
        servers.for_each(|it| set_user(it, user, &[]));
        let urls = cluster.servers.iter().map(|it| url_of(it, user));
        let urls: Vec<_> = urls.collect();
        let error = bounded(RedisStore::connect_cluster(&urls)).await;
        assert!(!error.expect_err("no right to it").is_outage());
        let more = additional("a cluster");
        for server in &cluster.servers {
            set_user(server, user, &more);
            server.command::<()>(&["ACL", "LOG", "RESET"]);
        }
        let connect = async || {
            let store = bounded(RedisStore::connect_cluster(&urls)).await;
            let store = store.expect("a connection").timeout(LONG);
            let store = store.scripting(user == "throttle");
            store.expect("its own connections")
        };
        let stores = [connect().await, connect().await];
        promises::keeps_these(&stores).await;
        cluster.servers.iter().for_each(assert_nothing_refused);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_take_the_additional_rights_in_the_guide() {
    let sentinels = Sentinels::start();
    let more = additional("sentinels: the user on the Redis servers");
    let servers = sentinels.servers.iter();
    servers.for_each(|it| set_user(it, "throttle", &more));
    let rights = additional("sentinels: the user on the sentinels");
    let rights = rights.iter().map(String::as_str);
    let none = ["resetkeys", "resetchannels", "-@all"].into_iter();
    let rights: Vec<_> = none.chain(rights).collect();
    let urls = sentinels.sentinels.iter().map(|it| it.user(&rights));
    let urls: Vec<_> = urls.collect();
    let primary = format!("redis://throttle:PASSWORD@{NAME}/");
    let store = bounded(RedisStore::connect_sentinel(urls, &primary)).await;
    let store = store.expect("a connection").timeout(LONG);
    do_everything(&store, &sentinels.servers[sentinels.primary()]).await;
}
