//! The rights that the guide lists are those that a user needs, no more and no less.

use redis::RedisResult;
use tower_throttle::store::{RedisStore, Store};

use crate::promises::{self, PATIENCE};
use crate::support::cluster::Cluster;
use crate::support::errors::bounded;
use crate::support::redis_server::{RedisServer, redis_6_2, valkey};
use crate::support::rights::do_everything;
use crate::support::sentinel::{NAME, Sentinels};

const GUIDE: &str = include_str!("../../src/docs/redis.md");

/// The words of the line by which the guide makes this user.
fn documented(user: &str) -> Vec<&'static str> {
    let start = format!("ACL SETUSER {user} on >PASSWORD ");
    let line = GUIDE.lines().find(|line| line.starts_with(&start));
    line.expect("a line in the guide").split(' ').collect()
}

/// What the guide adds in the row that begins with this.
pub(crate) fn besides(row: &str) -> Vec<String> {
    let line = GUIDE
        .lines()
        .rfind(|line| line.starts_with(&format!("| {row}")));
    let cell = line.expect("a row in the guide").rsplit(" | ").next();
    let words = cell
        .expect("a last cell")
        .trim_end_matches(" |")
        .trim_matches('`');
    words
        .split(' ')
        .map(|word| word.replace("\\|", "|"))
        .collect()
}

pub(crate) fn set_user(server: &RedisServer, user: &str, more: &[String]) {
    let more = more.iter().map(String::as_str);
    let words: Vec<_> = documented(user).into_iter().chain(more).collect();
    server.command::<()>(&words);
}

pub(crate) fn url_of(server: &RedisServer, user: &str) -> String {
    format!("redis://{user}:PASSWORD@127.0.0.1:{}/", server.port())
}

async fn connect(server: &RedisServer, user: &str) -> RedisStore {
    let store = bounded(RedisStore::connect(&url_of(server, user))).await;
    let store = store.expect("a connection").timeout(PATIENCE);
    let is_plain = user.ends_with("-plain");
    store.scripting(!is_plain).expect("a way to connect")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_guide_lists_is_enough_and_no_more_than_is_used() {
    let system = std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    for (binary, names_subcommands) in [
        (redis_6_2(), false),
        (system.into(), true),
        (valkey(), true),
    ] {
        for user in ["throttle", "throttle-plain"] {
            let server = RedisServer::start_as(binary.clone(), |_| Vec::new());
            set_user(&server, user, &[]);
            let store = connect(&server, user).await;
            assert!(store.is_listening());
            do_everything(&store).await;
            let info = server.command::<String>(&["INFO", "commandstats"]);
            let granted = documented(user)
                .into_iter()
                .filter_map(|it| it.strip_prefix('+'));
            for command in granted {
                let name = match command.split_once('|') {
                    Some((name, _)) if !names_subcommands => name,
                    _ => command,
                };
                assert!(info.contains(&format!("cmdstat_{name}:")), "{name}: {info}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_keys_and_channels_are_out_of_reach() {
    let server = RedisServer::start();
    set_user(&server, "throttle", &[]);
    let client = redis::Client::open(url_of(&server, "throttle")).expect("a valid url");
    let mut connection = client.get_connection().expect("a connection");
    for (words, is_allowed) in [
        (["SET", "throttle:a", "1"], true),
        (["SET", "others:a", "1"], false),
        (["PUBLISH", "throttle:pauses", "1"], true),
        (["PUBLISH", "others", "1"], false),
        (["CONFIG", "GET", "*"], false),
    ] {
        let answer: RedisResult<redis::Value> =
            redis::cmd(words[0]).arg(&words[1..]).query(&mut connection);
        assert_eq!(answer.is_ok(), is_allowed, "{words:?}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_number_takes_the_right_to_select_it() {
    let server = RedisServer::start();
    set_user(&server, "throttle", &[]);
    let url = url_of(&server, "throttle") + "7";
    let error = bounded(RedisStore::connect(&url))
        .await
        .expect_err("no right to it");
    assert!(!error.is_outage(), "{error:?}");
    set_user(&server, "throttle", &besides("a database number"));
    let store = bounded(RedisStore::connect(&url))
        .await
        .expect("a connection");
    do_everything(&store.timeout(PATIENCE)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_takes_the_rights_that_the_guide_adds() {
    let cluster = Cluster::start();
    for user in ["throttle", "throttle-plain"] {
        cluster
            .servers
            .iter()
            .for_each(|it| set_user(it, user, &[]));
        let urls = cluster.servers.iter().map(|it| url_of(it, user));
        let urls: Vec<_> = urls.collect();
        let error = bounded(RedisStore::connect_cluster(&urls)).await;
        assert!(!error.expect_err("no right to it").is_outage());
        let more = besides("a cluster");
        cluster
            .servers
            .iter()
            .for_each(|it| set_user(it, user, &more));
        let store = bounded(RedisStore::connect_cluster(&urls)).await;
        let store = store.expect("a connection").timeout(PATIENCE);
        let store = store
            .scripting(user == "throttle")
            .expect("a way to connect");
        assert!(store.is_listening());
        do_everything(&store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_take_the_rights_that_the_guide_adds() {
    let sentinels = Sentinels::start();
    let more = besides("sentinels, on the servers");
    sentinels
        .servers
        .iter()
        .for_each(|it| set_user(it, "throttle", &more));
    let on_sentinels = besides("sentinels, on the sentinels");
    let user = [
        "ACL",
        "SETUSER",
        "asks",
        "on",
        ">PASSWORD",
        "resetkeys",
        "resetchannels",
        "-@all",
    ];
    let words: Vec<_> = user
        .into_iter()
        .chain(on_sentinels.iter().map(String::as_str))
        .collect();
    sentinels
        .sentinels
        .iter()
        .for_each(|it| it.command::<()>(&words));
    let urls = sentinels.sentinels.iter().map(|it| url_of(it, "asks"));
    let primary = format!("redis://throttle:PASSWORD@{NAME}/");
    let store = bounded(RedisStore::connect_sentinel(urls, &primary)).await;
    let store = store.expect("a connection").timeout(PATIENCE);
    assert!(store.is_listening());
    do_everything(&store).await;
    let permit = bounded(promises::limiter(&store).acquire("a")).await;
    permit.expect("a permit");
}
