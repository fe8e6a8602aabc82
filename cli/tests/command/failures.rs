//! Missing keys, unrecognized values, and users without permissions.

use serde_json::Value;

use super::keys::{connect, on};
use super::{Ended, assert_harmless, throttle};
use support::redis_server::RedisServer;
use support::spend::{spend, under};

#[test]
fn a_missing_key_is_not_created() {
    let server = RedisServer::start();
    for args in [
        &["reset", "nope", "--yes", "--policy", "github"][..],
        &["resume", "nope", "--policy", "github"],
    ] {
        on(&server, args).assert_failed(1, "there is no state for the key \"nope\"");
        assert_eq!(server.command::<u8>(&["DBSIZE"]), 0, "{args:?}");
    }
}

#[test]
fn refused_commands_fail_without_printing_the_password() {
    let server = RedisServer::start();
    let user = [
        "ACL", "SETUSER", "user", "on", ">hunter2", "~*", "&*", "+@all", "-scan",
    ];
    server.command::<()>(&user);
    let url = format!("redis://user:hunter2@127.0.0.1:{}/", server.port());
    let ended = Ended::of(throttle(&["show", "api"]).env("REDIS_URL", &url));
    ended.assert_failed(3, "redis refused the call");
    assert!(
        ended.stderr.contains("'scan'") && !ended.stderr.contains("hunter2"),
        "{}",
        ended.stderr
    );
    let wrong = url.replace("hunter2", "hunter3");
    let ended = Ended::of(throttle(&["show", "api"]).env("REDIS_URL", wrong));
    ended.assert_failed(3, "redis refused the connection");
    assert!(!ended.stderr.contains("hunter"), "{}", ended.stderr);
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
        let ended = on(&server, args);
        assert_harmless(&ended.stdout);
        assert_harmless(&ended.stderr);
        assert!(
            ended.stdout.lines().all(|line| !line.starts_with('b')),
            "{}",
            ended.stdout
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unrecognized_value_does_not_affect_other_policies() {
    const WHY: &str = "not written by this version of tower-throttle";
    const BROKEN: &str = "throttle:{a}:z";
    let server = RedisServer::start();
    let writes: [&[&str]; 2] = [&["SET", BROKEN, "hello"], &["LPUSH", BROKEN, "x"]];
    for write in writes {
        spend(&connect(&server).await, under(&["10/h"]), "a", 3).await;
        server.command::<()>(write);
        for (args, done) in [
            (&["pause", "a", "1h"][..], "paused"),
            (&["show", "a"], ""),
            (&["resume", "a"], "resumed"),
        ] {
            let ended = on(&server, &[args, &["--json"]].concat());
            assert_eq!(ended.code, Some(1), "{args:?}: {}", ended.stderr);
            assert!(
                ended.stderr.starts_with("error: 1 of 2 policies "),
                "{}",
                ended.stderr
            );
            let printed: Value = serde_json::from_str(&ended.stdout).expect("JSON");
            let [valid, broken] = &printed["policies"].as_array().expect("a list")[..] else {
                panic!("{printed}");
            };
            assert_eq!(
                (&valid["policy"], &broken["policy"]),
                (&Value::Null, &"z".into())
            );
            assert_eq!(valid["error"], Value::Null, "{printed}");
            let error = broken["error"].as_str().expect("text");
            assert!(
                error.contains(WHY) && error.contains(BROKEN),
                "{args:?}: {error}"
            );
            let ended = on(&server, args);
            assert_eq!(ended.code, Some(1), "{args:?}: {}", ended.stderr);
            assert!(
                ended.stdout.contains("a  10/h") && ended.stdout.contains(WHY),
                "{}",
                ended.stdout
            );
            assert!(ended.stderr.contains(done), "{}", ended.stderr);
        }
        let alone = on(&server, &["show", "a", "--policy", "z"]);
        assert_eq!(alone.code, Some(1), "{}", alone.stderr);
        assert!(
            alone.stderr.contains("the state of \"a\" "),
            "{}",
            alone.stderr
        );
        assert_eq!(
            server.command::<String>(&["TYPE", BROKEN]) == "list",
            write[0] == "LPUSH"
        );

        let reset = on(&server, &["reset", "a", "--yes", "--json"]).json();
        let all = reset["policies"].as_array().expect("a list");
        let foreign: Vec<_> = all.iter().map(|it| it["foreign"].as_bool()).collect();
        assert_eq!(foreign, [Some(false), Some(true)], "{reset}");
        assert_eq!(server.command::<u8>(&["EXISTS", BROKEN]), 0);
    }
}
