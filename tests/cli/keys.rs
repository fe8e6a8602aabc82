//! What is told of a key, and done to it: `show`, `pause`, `resume` and `reset`.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout};
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, LimiterBuilder, Quota, Recovery};

use super::support::cluster::Cluster;
use super::support::redis_server::RedisServer;
use super::support::slots::slots;
use super::terminal::{Screen, ends};
use super::{Ended, throttle};

/// What a machine may need that does many other things.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn on(server: &RedisServer, args: &[&str]) -> Ended {
    let url = server.url();
    Ended::of(&mut throttle(&[args, &["--redis", &url]].concat()))
}

/// Waits for it elsewhere, as limiters in this process go on hearing of what it does.
async fn meanwhile(server: &RedisServer, args: &[&str]) -> Ended {
    let mut command = throttle(args);
    command.args(["--redis", &server.url()]);
    let ended = tokio::task::spawn_blocking(move || Ended::of(&mut command)).await;
    ended.expect("no panic")
}

pub(crate) async fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.url()).await;
    store.expect("a connection").timeout(PATIENCE)
}

pub(crate) fn under(quotas: &[&str]) -> LimiterBuilder {
    let quotas = quotas
        .iter()
        .map(|quota| quota.parse::<Quota>().expect("a quota"));
    quotas.fold(Limiter::builder(), LimiterBuilder::quota)
}

fn built(builder: LimiterBuilder) -> Limiter {
    builder.build().expect("a valid policy")
}

/// Slots straight from the store: none is lost, however late anybody comes for it.
pub(crate) async fn spend(store: &RedisStore, builder: LimiterBuilder, key: &str, count: u32) {
    slots(store, &key.into(), &built(builder).policy(), count).await;
}

fn seconds(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_policies_of_a_key_are_shown_and_no_other_key() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    spend(&store, under(&["10/h"]), "api", 10).await;
    spend(&store, under(&["5/h gcra burst=5", "3000/h"]), "api", 1).await;
    spend(&store, under(&["10/h"]), "api2", 1).await;
    let shown = on(&server, &["show", "api", "--json"]).json();
    assert_eq!(shown["key"], "api");
    let policies = shown["policies"].as_array().expect("a list");
    let ids: Vec<_> = policies.iter().map(|it| it["policy"].as_str()).collect();
    assert_eq!(ids, [Some("10/h"), Some("3000/h+5/h-gcra-5")]);
    let full = &policies[0];
    assert_eq!(full["quotas"][0]["used"], 10);
    assert_eq!(full["remaining"], 0);
    assert!(
        (3_000.0..3_602.0).contains(&seconds(&full["next_slot_seconds"])),
        "{full}"
    );
    assert!(
        seconds(&full["full_seconds"]) >= seconds(&full["next_slot_seconds"]),
        "{full}"
    );
    let stored = &full["redis"][0];
    assert_eq!(stored["name"], "throttle:{api}:10/h");
    let size: u64 = server.command(&["STRLEN", "throttle:{api}:10/h"]);
    assert_eq!(stored["bytes"], size);
    assert!(
        (3_000.0..3_700.0).contains(&seconds(&stored["expires_seconds"])),
        "{stored}"
    );
    assert_eq!(policies[1]["quotas"][0]["quota"], "3_000/h");
    assert_eq!(policies[1]["redis"].as_array().map(Vec::len), Some(2));

    let text = on(&server, &["show", "api"]);
    assert_eq!((text.code, &*text.stderr), (Some(0), ""));
    for line in [
        "api  10/h\n",
        "  used       10 of 10, by 10/h (0.0/s)\n",
        "  used       1 of 3_000, by 3_000/h (0.0/s)\n",
        "  used       at most 1 of 5, by 5/h gcra burst=5\n",
        "  remaining  0\n",
    ] {
        assert!(text.stdout.contains(line), "{line:?} in {}", text.stdout);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rate_is_of_what_has_departed() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    let rate = || {
        let shown = on(&server, &["show", "api", "--json"]).json();
        let quota = &shown["policies"][0]["quotas"][0];
        assert_eq!(quota["used"], 10, "{shown}");
        seconds(&quota["rate"])
    };
    // They have slots, after the pause.
    let paused = on(&server, &["pause", "api", "10m", "--quota", "10/h"]);
    assert_eq!(paused.code, Some(0), "{}", paused.stderr);
    spend(&store, under(&["10/h"]), "api", 30).await;
    assert!(rate() < 1e-9);
    on(&server, &["reset", "api", "--yes"]);
    spend(&store, under(&["10/h"]), "api", 30).await;
    let begun = Instant::now();
    while (rate() - 10.0 / 3_600.0).abs() > 1e-9 {
        assert!(begun.elapsed() < PATIENCE);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_chosen_by_its_name_its_id_or_its_quotas() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    spend(&store, under(&["10/h"]), "api", 1).await;
    spend(&store, under(&["10/h", "50/d"]).name("github"), "api", 1).await;
    let ids = |args: &[&str]| {
        let shown = on(&server, &[&["show", "api", "--json"], args].concat()).json();
        let policies = shown["policies"].as_array().expect("a list").iter();
        let ids = policies.map(|it| it["policy"].as_str().expect("text").to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]), ["10/h", "github:10/h+50/d"]);
    assert_eq!(ids(&["--policy", "github"]), ["github:10/h+50/d"]);
    assert_eq!(ids(&["--policy", "10/h"]), ["10/h"]);
    assert_eq!(ids(&["--quota", "10/h"]), ["10/h"]);
    let both = ["--quota", "50/day", "--quota", "10/h", "--policy", "github"];
    assert_eq!(ids(&both), ["github:10/h+50/d"]);
    for args in [
        &["other"][..],
        &["api", "--policy", "gitlab"],
        &["api", "--quota", "7/s"],
    ] {
        let ended = on(&server, &[&["show"], args].concat());
        ended.assert_failed(1, "there is no state of the key");
        assert!(
            ended.stderr.contains("hint: state is kept"),
            "{}",
            ended.stderr
        );
    }
    on(&server, &["show", ""]).assert_failed(2, "the key is empty");
    on(&server, &["show", "api", "--quota", "0/s"]).assert_failed(2, "limit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_buffer_may_have_a_part_in_is_no_exact_number() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    let buffer = Duration::from_secs(600);
    for (quota, is_exact) in [
        ("20/h leaky-bucket capacity=20", false),
        ("20/h gcra burst=20", false),
        ("20/h spacing", false),
        ("20/h", true),
        ("20/h sliding-buckets buckets=4", true),
    ] {
        server.command::<()>(&["FLUSHALL"]);
        let spent = if quota.ends_with("spacing") { 1 } else { 3 };
        spend(&store, under(&[quota]).buffer(buffer), "api", spent).await;
        let shown = on(&server, &["show", "api", "--json"]).json();
        let policy = &shown["policies"][0];
        let used = policy["quotas"][0]["used"].as_u64().expect("a number");
        assert!(
            used >= spent.into() && (used == u64::from(spent) || !is_exact),
            "{shown}"
        );
        assert_eq!(policy["exact"], is_exact, "{shown}");
        let text = on(&server, &["show", "api"]).stdout;
        assert_eq!(text.contains("  used       at most "), !is_exact, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_limiter_keeps_to_a_pause_until_it_is_ended() {
    let server = RedisServer::start();
    let limiter = built(under(&["1/s"]).store(connect(&server).await));
    let none = on(&server, &["pause", "api", "1h"]);
    none.assert_failed(1, "there is no state of the key \"api\"");
    assert!(none.stderr.contains("`--quota`"), "{}", none.stderr);

    limiter.acquire("api").await.expect("a permit");
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("api").await.map(|_| Instant::now()) }
    });
    let paused = meanwhile(&server, &["pause", "api", "1h", "--quota", "1/s", "--json"]).await;
    let paused = paused.json();
    assert_eq!(paused["policies"][0]["longer"], false);
    assert!((3_500.0..=3_600.0).contains(&seconds(&paused["policies"][0]["paused_seconds"])));
    let decision = limiter.try_acquire("api").await.expect("a decision");
    assert!(!decision.is_granted());
    let shorter = meanwhile(&server, &["pause", "api", "1s"]).await;
    assert_eq!(shorter.code, Some(0), "{}", shorter.stderr);
    assert!(
        shorter.stdout.contains("as it was already"),
        "{}",
        shorter.stdout
    );
    assert!(
        shorter.stderr.contains("other quotas"),
        "{}",
        shorter.stderr
    );
    let shown = meanwhile(&server, &["show", "api"]).await;
    assert!(
        shown.stdout.contains("\n  paused     for 59m "),
        "{}",
        shown.stdout
    );

    // The one that waits may have departed before the pause; nobody has since.
    let before = Instant::now();
    let resumed = meanwhile(&server, &["resume", "api", "--json"])
        .await
        .json();
    assert_eq!(resumed["policies"][0]["resumed"], true);
    let departed = timeout(PATIENCE, waiting)
        .await
        .expect("in time")
        .expect("no panic");
    let departed = departed.expect("a permit");
    let again = timeout(PATIENCE, limiter.acquire("api")).await;
    again.expect("in time").expect("a permit");
    assert!(departed < before + PATIENCE);
    let twice = meanwhile(&server, &["resume", "api"]).await;
    assert!(twice.stdout.contains("was not paused"), "{}", twice.stdout);
    on(&server, &["pause", "api", "0s"]).assert_failed(2, "a pause of no time");
    on(&server, &["pause", "api", "soon"]).assert_failed(2, "invalid value");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_is_a_fresh_start_also_where_recovery_is_strict() {
    let server = RedisServer::start();
    for recovery in [Recovery::default(), Recovery::Strict] {
        server.command::<()>(&["FLUSHALL"]);
        let builder = under(&["100/h"]).recovery(recovery);
        let limiter = built(builder.store(connect(&server).await));
        // A strict one rests at first, as the store has just been born.
        while limiter
            .try_acquire("api")
            .await
            .expect("a decision")
            .is_granted()
        {}
        let shown = meanwhile(&server, &["show", "api"]).await.stdout;
        let is_strict = matches!(recovery, Recovery::Strict);
        assert_eq!(shown.contains("\n  rests      for "), is_strict, "{shown}");
        assert_eq!(shown.contains("\n  lives      for "), is_strict, "{shown}");
        let shown = meanwhile(&server, &["show", "api", "--json"]).await.json();
        let lives = &shown["policies"][0]["lives_seconds"];
        assert_eq!(lives.is_number(), is_strict, "{shown}");
        assert!(
            !is_strict || (0.0..600.0).contains(&seconds(lives)),
            "{shown}"
        );
        let unasked = meanwhile(&server, &["reset", "api"]).await;
        unasked.assert_failed(2, "nobody is there");
        let reset = meanwhile(&server, &["reset", "api", "--yes", "--json"])
            .await
            .json();
        let policies = serde_json::json!([{"policy": "100/h", "foreign": false, "error": null}]);
        assert_eq!(reset["policies"], policies);
        // Whoever remembers a refusal hears that it is void.
        let fresh = timeout(PATIENCE, limiter.acquire("api")).await;
        fresh.expect("in time").expect("a permit");
    }
    on(&server, &["reset", "nobody", "-y"]).assert_failed(1, "there is no state");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_asks_whether_it_is_meant() {
    let server = RedisServer::start();
    let url = server.url();
    spend(&connect(&server).await, under(&["10/h"]), "api", 3).await;
    for (answer, code) in [("\r", 1), ("n\r", 1), ("y\r", 0)] {
        let (mut screen, mut reset) = Screen::with(&["reset", "api", "--redis", &url], 80, 24);
        screen.wait_for("Forget what departed for \"api\" by 10/h? [y/N] ");
        screen.type_keys(answer);
        assert_eq!(ends(&mut reset).code(), Some(code), "{answer:?}");
        assert_eq!(server.command::<u8>(&["DBSIZE"]), u8::from(code == 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_which_there_is_but_a_digest_is_shown_and_not_touched() {
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
    assert_eq!(paused["policies"][0]["policy"], "10/h");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_keys_and_other_prefixes_are_found() {
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
    let store = store.timeout(PATIENCE);
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
        args(&["show", &key]).assert_failed(1, "there is no state");
    }
    for command in [
        &["top", "--json", "--count", "1"][..],
        &["show", "key"],
        &["pause", "key", "1h", "--quota", "3/h"],
        &["resume", "key", "--quota", "3/h"],
        &["reset", "key", "--yes"],
    ] {
        for server in &cluster.servers {
            let ended = on(server, command);
            ended.assert_failed(2, "the server is one of a cluster\nhint: `--cluster`");
        }
    }
}

/// Each number is as good as any other: they depend on when it is asked.
fn without_numbers(text: &str) -> String {
    let parts = text.split(|char: char| char.is_ascii_digit() || "._".contains(char));
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("#")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guide_shows_what_is_told_of_a_key() {
    const GUIDE: &str = include_str!("../../src/docs/cli.md");
    let section = GUIDE
        .split("\n# Look at a key\n")
        .nth(1)
        .expect("a section");
    let block = section.split("```text\n").nth(1).expect("a block");
    let shown = block.split("```").next().expect("its end");
    let server = RedisServer::start();
    spend(
        &connect(&server).await,
        under(&["10/s"]),
        "api.example.com",
        15,
    )
    .await;
    let paused = on(&server, &["pause", "api.example.com", "30s"]);
    assert_eq!(paused.code, Some(0), "{}", paused.stderr);
    let told = on(&server, &["show", "api.example.com"]).stdout;
    assert_eq!(without_numbers(&told), without_numbers(shown), "{told}");
}
