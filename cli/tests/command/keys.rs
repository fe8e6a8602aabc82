//! The commands about one key: `show`, `pause`, `resume` and `reset`.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout};
use tower_throttle::Recovery;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, LimiterBuilder};

use super::terminal::{Screen, ends};
use super::{Ended, throttle};
use support::cluster::Cluster;
use support::redis_server::RedisServer;
use support::spend::{spend, under};

/// Far longer than any operation takes.
const LONG: Duration = Duration::from_secs(60);

pub(crate) fn on(server: &RedisServer, args: &[&str]) -> Ended {
    let url = server.url();
    Ended::of(&mut throttle(&[args, &["--redis", &url]].concat()))
}

/// Runs the command on another thread, so that limiters in this process continue.
async fn run_async(server: &RedisServer, args: &[&str]) -> Ended {
    let mut command = throttle(args);
    command.args(["--redis", &server.url()]);
    let ended = tokio::task::spawn_blocking(move || Ended::of(&mut command)).await;
    ended.expect("no panic")
}

pub(crate) async fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.url()).await;
    store.expect("a connection").timeout(LONG)
}

fn built(builder: LimiterBuilder) -> Limiter {
    builder.build().expect("a valid policy")
}

fn seconds(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is not a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_policies_of_only_this_key_are_shown() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    spend(&store, under(&["10/h"]), "api", 10).await;
    let named = under(&["3000/h", "5/h gcra burst=5"]).name("github");
    spend(&store, named, "api", 1).await;
    spend(&store, under(&["10/h"]), "api2", 1).await;
    let shown = on(&server, &["show", "api", "--json"]).json();
    assert_eq!(shown["key"], "api");
    let policies = shown["policies"].as_array().expect("a list");
    let names: Vec<_> = policies.iter().map(|it| it["policy"].as_str()).collect();
    assert_eq!(names, [None, Some("github")]);
    let full = &policies[0];
    assert_eq!(full["quotas"][0]["used"], 10);
    assert_eq!(
        (&full["remaining"], &full["exact"]),
        (&0.into(), &true.into())
    );
    assert!(
        (3_000.0..3_602.0).contains(&seconds(&full["next_seconds"])),
        "{full}"
    );
    assert!(
        seconds(&full["full_seconds"]) >= seconds(&full["next_seconds"]),
        "{full}"
    );
    let stored = &full["redis"];
    assert_eq!(stored["name"], "throttle:{api}");
    assert_eq!(
        stored["bytes"],
        server.command::<u64>(&["STRLEN", "throttle:{api}"])
    );
    assert!(
        (3_000.0..4_700.0).contains(&seconds(&stored["expires_seconds"])),
        "{stored}"
    );
    assert_eq!(policies[1]["quotas"][1]["quota"], "3_000/h");
    assert_eq!(policies[1]["exact"], false);
    assert_eq!(policies[1]["redis"]["name"], "throttle:{api}:github");

    let text = on(&server, &["show", "api"]);
    assert_eq!((text.code, &*text.stderr), (Some(0), ""));
    for line in [
        "api  10/h\n",
        "  used       10 of 10, by 10/h (0.0/s)\n",
        "api  github\n",
        "  used       1 of 3_000, by 3_000/h (0.0/s)\n",
        "by 5/h gcra burst=5\n",
        "  used       at most ",
        "  remaining  0\n",
    ] {
        assert!(text.stdout.contains(line), "{line:?} in {}", text.stdout);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_chosen_by_its_name() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    spend(&store, under(&["10/h"]), "api", 1).await;
    spend(&store, under(&["10/h"]).name("github"), "api", 3).await;
    let args = ["show", "api", "--json", "--policy", "github"];
    let shown = on(&server, &args).json();
    let policies = shown["policies"].as_array().expect("a list");
    assert_eq!((policies.len(), &policies[0]["remaining"]), (1, &7.into()));
    for args in [&["other"][..], &["api", "--policy", "gitlab"]] {
        let ended = on(&server, &[&["show"], args].concat());
        ended.assert_failed(1, "there is no state for the key");
        assert!(
            ended.stderr.contains("hint: state expires"),
            "{}",
            ended.stderr
        );
    }
    on(&server, &["show", ""]).assert_failed(2, "the key is empty");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_requests_are_shown_by_process() {
    let server = RedisServer::start();
    let limiters = [
        built(under(&["1/h"]).store(connect(&server).await)),
        built(under(&["1/h"]).store(connect(&server).await)),
    ];
    limiters[0].acquire("api").await.expect("a permit");
    let waiting = limiters.iter().map(|limiter| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.acquire("api").await.map(drop) })
    });
    let waiting: Vec<_> = waiting.collect();
    let begun = Instant::now();
    let policy = loop {
        let shown = run_async(&server, &["show", "api", "--json"]).await.json();
        let policy = shown["policies"][0].clone();
        if policy["waiting"] == 2 {
            break policy;
        }
        assert!(begun.elapsed() < LONG, "{policy}");
    };
    let processes = policy["processes"].as_array().expect("a list");
    assert_eq!(processes.len(), 2, "{policy}");
    assert!(processes.iter().all(|it| it["units"] == 1), "{policy}");
    assert!(seconds(&policy["next_seconds"]) > 2.0 * 3_500.0, "{policy}");
    let text = run_async(&server, &["show", "api"]).await.stdout;
    assert_eq!(
        text.matches("  waiting    1 in process ").count(),
        2,
        "{text}"
    );
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_limiter_obeys_pause_and_resume() {
    let server = RedisServer::start();
    let limiter = built(under(&["1/s"]).store(connect(&server).await));
    // The key has no state yet.
    let ended = run_async(&server, &["pause", "api", "1h", "--json"]).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("`--policy NAME`"), "{}", ended.stderr);
    let paused: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(paused["policies"][0]["longer"], false);
    assert_eq!(seconds(&paused["policies"][0]["paused_seconds"]), 3_600.0);
    let decision = limiter.try_acquire("api").await.expect("a decision");
    assert!(!decision.is_granted());
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("api").await.map(|_| Instant::now()) }
    });
    let shorter = run_async(&server, &["pause", "api", "1s"]).await;
    assert_eq!((shorter.code, &*shorter.stderr), (Some(0), ""));
    assert!(
        shorter.stdout.contains("because of an earlier pause"),
        "{}",
        shorter.stdout
    );
    let shown = run_async(&server, &["show", "api"]).await;
    assert!(
        shown.stdout.contains("\n  paused     for 59m "),
        "{}",
        shown.stdout
    );

    let before = Instant::now();
    let resumed = run_async(&server, &["resume", "api", "--json"])
        .await
        .json();
    assert_eq!(resumed["policies"][0]["resumed"], true);
    let departed = timeout(LONG, waiting)
        .await
        .expect("in time")
        .expect("no panic");
    assert!(departed.expect("a permit") >= before);
    let twice = run_async(&server, &["resume", "api"]).await;
    assert!(twice.stdout.contains("was not paused"), "{}", twice.stdout);
    on(&server, &["pause", "api", "0s"]).assert_failed(2, "the time must be greater than zero");
    on(&server, &["pause", "api", "soon"]).assert_failed(2, "invalid value");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_key_can_be_paused_under_every_quota() {
    let server = RedisServer::start();
    for quotas in [
        &["10/h", "2/s"][..],
        &["100/m gcra burst=20"],
        &["5/h fixed-window"],
        &["5000/s"],
    ] {
        let named = under(quotas).name("github");
        let limiter = built(named.store(connect(&server).await));
        let key = quotas.concat();
        let is_granted = async || {
            let decision = limiter.try_acquire(&*key).await;
            decision.expect("a decision").is_granted()
        };
        let args = ["pause", &key, "1h", "--policy", "github"];
        let paused = run_async(&server, &args).await;
        assert_eq!((paused.code, &*paused.stderr), (Some(0), ""));
        assert!(!is_granted().await, "{quotas:?}");
        let shown = run_async(&server, &["show", &key, "--json"]).await.json();
        let shown = shown["policies"][0]["quotas"].as_array().expect("a list");
        assert_eq!(
            shown.len(),
            quotas.len(),
            "the limiter's quotas replace the placeholder"
        );
        let resumed = run_async(&server, &["resume", &key, "--json"]).await.json();
        assert_eq!(resumed["policies"][0]["resumed"], true);
        assert!(is_granted().await, "{quotas:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_clears_the_key_under_every_recovery() {
    for recovery in [Recovery::default(), Recovery::Strict] {
        let server = RedisServer::start();
        let builder = under(&["100/h"]).recovery(recovery);
        let limiter = built(builder.store(connect(&server).await));
        // Under strict recovery, a new server puts all keys in quarantine.
        let mut granted = 0;
        while limiter
            .try_acquire("api")
            .await
            .expect("a decision")
            .is_granted()
        {
            granted += 1;
        }
        let is_strict = matches!(recovery, Recovery::Strict);
        assert_eq!(granted, if is_strict { 0 } else { 100 });
        let shown = run_async(&server, &["show", "api"]).await.stdout;
        assert_eq!(shown.contains("\n  quarantine for "), is_strict, "{shown}");
        assert_eq!(shown.contains("\n  generation "), is_strict, "{shown}");
        let shown = run_async(&server, &["show", "api", "--json"]).await.json();
        assert_eq!(
            shown["policies"][0]["generation"].is_object(),
            is_strict,
            "{shown}"
        );
        assert_eq!(
            shown["policies"][0]["quarantined_seconds"].is_number(),
            is_strict,
            "{shown}"
        );
        let unconfirmed = run_async(&server, &["reset", "api"]).await;
        unconfirmed.assert_failed(2, "pass `--yes` to confirm");
        let args = ["reset", "api", "--yes", "--json"];
        let reset = run_async(&server, &args).await.json();
        let policies = serde_json::json!([{"policy": null, "foreign": false, "error": null}]);
        assert_eq!(reset["policies"], policies);
        if !is_strict {
            let fresh = timeout(LONG, limiter.acquire("api")).await;
            fresh.expect("in time").expect("a permit");
        }
        on(&server, &["reset", "unused", "-y"]).assert_failed(1, "there is no state");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_asks_for_confirmation() {
    let server = RedisServer::start();
    let url = server.url();
    spend(&connect(&server).await, under(&["10/h"]), "api", 3).await;
    for (answer, code) in [("\r", 1), ("n\r", 1), ("y\r", 0)] {
        let (mut screen, mut reset) = Screen::with(&["reset", "api", "--redis", &url], 80, 24);
        screen.wait_for("Reset the key \"api\" for 10/h? [y/N] ");
        screen.type_keys(answer);
        assert_eq!(ends(&mut reset).code(), Some(code), "{answer:?}");
        let shown = on(&server, &["show", "api", "--json"]).json();
        let used = if code == 0 { 0 } else { 3 };
        assert_eq!(shown["policies"][0]["quotas"][0]["used"], used);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_digest_can_be_shown_but_not_changed() {
    let server = RedisServer::start();
    let long = "long/".repeat(40);
    spend(&connect(&server).await, under(&["10/h"]), &long, 3).await;
    let shown = on(&server, &["show", &long, "--json"]).json();
    let digest = shown["policies"][0]["encoded"]
        .as_str()
        .expect("text")
        .to_owned();
    assert!(digest.starts_with("%sha256:") && shown["policies"][0]["key"].is_null());
    let same = on(&server, &["show", &digest, "--json"]).json();
    let used = |shown: &Value| shown["policies"][0]["quotas"][0]["used"].clone();
    assert_eq!((used(&same), used(&shown)), (3.into(), 3.into()));
    for args in [&["pause", &*digest, "1s"][..], &["reset", &digest, "--yes"]] {
        on(&server, args).assert_failed(2, "the digest of a key");
    }
    let paused = on(&server, &["pause", &long, "1h", "--json"]).json();
    assert_eq!(paused["policies"][0]["paused_seconds"], 3_600.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn special_keys_and_prefixes_are_found() {
    let server = RedisServer::start();
    let store = connect(&server).await.prefix("other*").expect("a prefix");
    for key in ["GET /a/{b}|x", "é*[?]", "a b"] {
        spend(&store, under(&["3/h"]), key, 1).await;
        let shown = on(&server, &["show", key, "--prefix", "other*", "--json"]).json();
        assert_eq!(shown["policies"][0]["key"], key);
        on(&server, &["show", key]).assert_failed(1, "there is no state");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_all_servers_of_a_cluster_are_found() {
    let cluster = Cluster::start();
    let store = RedisStore::connect_cluster(cluster.urls())
        .await
        .expect("a connection");
    let store = store.timeout(LONG);
    let url = &cluster.servers[4].url();
    for key in cluster.keys_of_each() {
        spend(&store, under(&["3/h"]), &key, 1).await;
        let args =
            |command: &[&str]| Ended::of(throttle(command).args(["--cluster", "--redis", url]));
        let shown = args(&["show", &key, "--json"]).json();
        assert_eq!(shown["policies"][0]["remaining"], 2);
        args(&["pause", &key, "1h", "--json"]).json();
        assert!(args(&["show", &key]).stdout.contains("paused"));
        args(&["reset", &key, "--yes", "--json"]).json();
        let shown = args(&["show", &key, "--json"]).json();
        assert_eq!(shown["policies"][0]["remaining"], 3);
    }
    for command in [
        &["top", "--json", "--count", "1"][..],
        &["show", "key"],
        &["pause", "key", "1h"],
        &["resume", "key"],
        &["reset", "key", "--yes"],
    ] {
        for server in &cluster.servers {
            let ended = on(server, command);
            ended.assert_failed(2, "the server belongs to a cluster\nhint: pass `--cluster`");
        }
    }
}

/// Replaces numbers, because they depend on the time.
fn without_numbers(text: &str) -> String {
    let parts = text.split(|char: char| char.is_ascii_digit() || "._".contains(char));
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("#")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guide_shows_the_real_output_of_show() {
    const GUIDE: &str = include_str!("../../README.md");
    let section = GUIDE
        .split("\n# Look at a key\n")
        .nth(1)
        .expect("a section");
    let block = section.split("```text\n").nth(1).expect("a block");
    let shown = block.split("```").next().expect("its end");
    let server = RedisServer::start();
    let store = connect(&server).await;
    spend(&store, under(&["10/m"]), "api.example.com", 10).await;
    let paused = on(&server, &["pause", "api.example.com", "30s"]);
    assert_eq!(paused.code, Some(0), "{}", paused.stderr);
    let printed = on(&server, &["show", "api.example.com"]).stdout;
    assert_eq!(
        without_numbers(&printed),
        without_numbers(shown),
        "{printed}"
    );
}
