//! Users without permissions, and control characters in keys.

use super::{Ended, assert_harmless, throttle, words};
use support::redis_server::RedisServer;
use support::spend::{spend, under};

#[test]
fn refused_commands_fail_without_printing_the_password() {
    let server = RedisServer::start();
    server.command::<()>(&words("ACL SETUSER user on >hunter2 ~* &* +@all -scan"));
    let show = |password| {
        let url = format!("redis://user:{password}@127.0.0.1:{}/", server.port());
        Ended::of(throttle(&["show", "api"]).env("REDIS_URL", url))
    };
    show("hunter2").failed(3, &["redis refused the call", "'scan'"]);
    show("hunter3").failed(3, &["redis refused the connection"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_characters_in_keys_are_escaped() {
    const KEY: &str = "\u{1b}[31m\u{202e}a\u{200b}\nb";
    let server = RedisServer::start();
    spend(&server.store().await, under(&["10/h"]), KEY, 1).await;
    for args in [
        &["show", KEY][..],
        &["pause", KEY, "1h"],
        &["resume", KEY],
        &["reset", KEY, "--yes"],
        &["show", KEY],
        &["reset", KEY],
    ] {
        let ended = Ended::of(throttle(args).args(["--redis", &server.url()]));
        assert_harmless(&ended.stdout);
        assert_harmless(&ended.stderr);
        let is_safe = |line: &str| !line.starts_with('b');
        assert!(ended.stdout.lines().all(is_safe), "{}", ended.stdout);
    }
}
