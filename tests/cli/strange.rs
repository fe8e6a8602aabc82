//! Keys that are not there, that mean two things, that somebody else has written, and users without rights.

use serde_json::Value;

use super::keys::{connect, on, spend, under};
use super::support::redis_server::RedisServer;
use super::{Ended, assert_harmless, throttle};

#[test]
fn nothing_is_done_to_a_key_that_nobody_has() {
    let server = RedisServer::start();
    for args in [
        &["reset", "nope", "--yes", "--policy", "10/h"][..],
        &["reset", "nope", "--yes", "--quota", "10/h"],
        &["pause", "nope", "1h", "--policy", "10/h"],
        &["resume", "nope", "--policy", "github:10/h"],
    ] {
        on(&server, args).assert_failed(1, "there is no state of the key \"nope\"");
        assert_eq!(server.command::<u8>(&["DBSIZE"]), 0, "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_an_id_as_well_means_neither() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    spend(&store, under(&["10/h"]), "a", 1).await;
    spend(&store, under(&["10/h"]).name("10/h"), "a", 1).await;
    spend(&store, under(&["10/h"]).name("10/h"), "b", 1).await;
    let shown = on(&server, &["show", "b", "--policy", "10/h", "--json"]).json();
    assert_eq!(shown["policies"][0]["policy"], "10/h:10/h");
    let reset = on(&server, &["reset", "a", "--policy", "10/h", "--yes"]);
    reset.assert_failed(2, "the name of a policy and the id of another");
    assert!(reset.stderr.contains("hint: `--quota`"), "{}", reset.stderr);
    assert_eq!(server.command::<u8>(&["DBSIZE"]), 3);
    for (args, id) in [
        (&["--policy", "10/h:10/h"][..], "10/h:10/h"),
        (&["--policy", "10/h", "--quota", "10/h"], "10/h:10/h"),
        (&["--quota", "10/h"], "10/h"),
    ] {
        let shown = on(&server, &[&["show", "a", "--json"], args].concat()).json();
        let ids: Vec<_> = shown["policies"]
            .as_array()
            .expect("a list")
            .iter()
            .collect();
        assert_eq!(ids.len(), 1, "{shown}");
        assert_eq!(ids[0]["policy"], id);
    }
}

#[test]
fn what_redis_refuses_is_a_failure_and_tells_no_password() {
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
async fn no_key_gives_orders_to_a_terminal() {
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

/// What the command says of a policy that somebody else has broken, beside one that is sound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_a_stranger_has_broken_keeps_nothing_from_the_others() {
    let server = RedisServer::start();
    spend(&connect(&server).await, under(&["10/h"]), "a", 3).await;
    let text: [&[&str]; 2] = [
        &["SET", "throttle:{a}:7/h", "hello"],
        &["LPUSH", "throttle:{a}:7/h", "x"],
    ];
    for (write, why) in text
        .into_iter()
        .zip(["was not written by a throttle", "wrong kind of value"])
    {
        server.command::<()>(&["DEL", "throttle:{a}:7/h"]);
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
            let told: Value = serde_json::from_str(&ended.stdout).expect("JSON");
            let [sound, broken] = &told["policies"].as_array().expect("a list")[..] else {
                panic!("{told}");
            };
            assert_eq!(
                (&sound["policy"], &broken["policy"]),
                (&"10/h".into(), &"7/h".into())
            );
            assert_eq!(sound["error"], Value::Null, "{told}");
            let error = broken["error"].as_str().expect("text");
            assert!(error.contains(why), "{args:?}: {error}");
            let ended = on(&server, args);
            assert_eq!(ended.code, Some(1), "{args:?}: {}", ended.stderr);
            assert!(
                ended.stdout.contains("a  10/h") && ended.stdout.contains(why),
                "{}",
                ended.stdout
            );
            assert!(ended.stderr.contains(done), "{}", ended.stderr);
        }
        let alone = on(&server, &["show", "a", "--quota", "7/h"]);
        assert_eq!(alone.code, Some(1), "{}", alone.stderr);
        assert!(
            alone.stderr.contains("the state of \"a\" "),
            "{}",
            alone.stderr
        );

        // That takes more than to ask what stands there.
        let reset = on(&server, &["reset", "a", "--yes", "--json"]).json();
        let foreign = |policy: &Value| policy["foreign"].as_bool().expect("a word");
        let all: Vec<_> = reset["policies"]
            .as_array()
            .expect("a list")
            .iter()
            .map(foreign)
            .collect();
        assert!(all.ends_with(&[true]), "{reset}");
        assert_eq!(server.command::<u8>(&["EXISTS", "throttle:{a}:7/h"]), 0);
        on(&server, &["show", "a"]).assert_failed(1, "there is no state");
        spend(&connect(&server).await, under(&["10/h"]), "a", 3).await;
    }
}
