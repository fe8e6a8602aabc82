//! Missing keys, unrecognized values, and users without permissions.

use serde_json::{Value, json};

use super::{Ended, assert_harmless, assert_has, assert_includes, connect, on, throttle, words};
use support::redis_server::RedisServer;
use support::spend::{spend, under};

#[test]
fn a_missing_key_is_not_created() {
    let server = RedisServer::start();
    for line in ["reset nope --yes", "resume nope", "show nope", "reset nope"] {
        let parts = [
            "there is no state for the key \"nope\"",
            "hint: state expires",
        ];
        for policy in ["", "--policy github"] {
            let ended = on(&server, &format!("{line} {policy}"));
            match line {
                "reset nope" => ended.failed(2, &["pass `--yes` to confirm"]),
                _ => ended.failed(1, &parts),
            }
        }
        assert_eq!(server.command::<u8>(&["DBSIZE"]), 0, "{line}");
    }
}

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
    spend(&connect(&server).await, under(&["10/h"]), KEY, 1).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unrecognized_value_does_not_affect_other_policies() {
    const WHY: &str = "not written by this version of tower-throttle";
    const BROKEN: &str = "throttle:{a}:z";
    let server = RedisServer::start();
    for write in [["SET", BROKEN, "hello"], ["LPUSH", BROKEN, "x"]] {
        spend(&connect(&server).await, under(&["10/h"]), "a", 3).await;
        server.command::<()>(&write);
        for (line, done) in [
            ("pause a 1h", "paused"),
            ("show a", "cannot be read"),
            ("resume a", "resumed"),
        ] {
            let json = on(&server, &format!("{line} --json"));
            let printed = json.failed_json(1, "error: 1 of 2 policies ");
            let policies = json!([{ "policy": null }, { "policy": "z" }]);
            assert_includes(&printed["policies"], &policies);
            assert_eq!(
                printed["policies"][0].get("error").unwrap_or(&Value::Null),
                &Value::Null
            );
            let error = printed["policies"][1]["error"].to_string();
            let text = on(&server, line);
            assert_eq!(text.code, Some(1), "{line}: {}", text.stderr);
            assert_has(&text.stderr, done);
            assert_has(&text.stdout, "a  10/h");
            for shown in [&error, &text.stdout] {
                assert_has(shown, WHY);
                assert_has(shown, BROKEN);
            }
        }
        let alone = on(&server, "show a --policy z");
        assert_eq!(alone.code, Some(1), "{}", alone.stderr);
        assert_has(&alone.stderr, "the state of \"a\" ");
        let is_list = server.command::<String>(&["TYPE", BROKEN]) == "list";
        assert_eq!(is_list, write[0] == "LPUSH");

        let reset = on(&server, "reset a --yes --json").json();
        let policies = json!([{ "foreign": false }, { "foreign": true }]);
        assert_includes(&reset["policies"], &policies);
        assert_eq!(server.command::<u8>(&["EXISTS", BROKEN]), 0);
    }
}
