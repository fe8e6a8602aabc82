//! The commands about one key: `show`, `pause`, `resume` and `reset`.

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tower_throttle::{Limiter, Priority, Recovery};

use super::terminal::{Screen, ends};
use super::{Ended, GUIDE, LONG, assert_has, assert_includes, on, run, throttle, words};
use support::cluster::Cluster;
use support::redis_server::RedisServer;
use support::spend::{build, spend, under};

async fn limiter(server: &RedisServer, quotas: &[&str]) -> Limiter {
    let builder = under(quotas).store(server.store().await);
    builder.build().expect("a valid policy")
}

async fn is_granted(limiter: &Limiter) -> bool {
    let decision = limiter.try_acquire("api").await;
    decision.expect("a decision").is_granted()
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policies_of_only_this_key_are_shown() {
    let server = RedisServer::start();
    let store = server.store().await;
    spend(&store, under(&["10/h"]), "api", 10).await;
    let named = under(&["3000/h", "5/h gcra burst=5"]).name("github");
    spend(&store, named, "api", 1).await;
    spend(&store, under(&["10/h"]), "api2", 1).await;
    let shown = on(&server, "show api --json").json();
    let bytes: u64 = server.command(&["STRLEN", "throttle:{api}"]);
    let full = json!({ "policy": null, "quotas": [{ "used": 10 }], "remaining": { "requests": 0 }, "exact": true,
        "redis": { "name": "throttle:{api}", "bytes": bytes } });
    let named = json!({ "policy": "github", "quotas": [{ "quota": "3000/h" }, {}], "exact": false,
        "redis": { "name": "throttle:{api}:github" } });
    assert_includes(&shown, &json!({ "key": "api", "policies": [full, named] }));
    let full = &shown["policies"][0];
    let next = seconds(&full["next_seconds"]);
    assert!((3_000.0..3_602.0).contains(&next), "{full}");
    assert!(seconds(&full["full_seconds"]) >= next, "{full}");
    let expires = seconds(&full["redis"]["expires_seconds"]);
    assert!((3_000.0..4_700.0).contains(&expires), "{full}");
    let one = on(&server, "show api --json --policy github").json();
    assert_includes(&one["policies"], &json!([{ "policy": "github" }]));
    on(&server, "show api --policy gitlab").failed(1, &["there is no state for the key"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_requests_are_shown_by_process() {
    let server = RedisServer::start();
    let limiters = [
        limiter(&server, &["1/h"]).await,
        limiter(&server, &["1/h"]).await,
    ];
    limiters[0].acquire("api").await.expect("a permit");
    let [one, other] = limiters;
    let acquires = [
        one.acquire("api"),
        other.acquire("api").priority(Priority::Low),
        other.acquire("api").share("tenant", 3),
    ];
    let waiting = acquires.map(|acquire| tokio::spawn(async move { acquire.await.map(drop) }));
    let begun = Instant::now();
    let policy = loop {
        let shown = on(&server, "show api --json").json();
        let policy = shown["policies"][0].clone();
        if policy["waiting"]["requests"] == 3 {
            break policy;
        }
        assert!(begun.elapsed() < LONG, "{policy}");
    };
    let one = json!({ "requests": 1 });
    let levels = json!({ "normal": { "requests": 2 }, "low": one });
    assert_includes(&policy["waiting_by_priority"], &levels);
    assert!(seconds(&policy["next_seconds"]) > 2.0 * 3_500.0, "{policy}");
    let processes = policy["processes"].as_array().expect("a list");
    let units = processes.iter().map(|process| &process["units"]);
    assert!(units.eq([&one; 3]), "{policy}");
    let share = processes.iter().find_map(|it| it["share"].as_str());
    let of_share = format!("of share {}", share.expect("a share"));
    let text = on(&server, "show api").printed();
    for part in ["1 in", "1 of low priority in", &format!("1 {of_share} in")] {
        assert_has(&text, &format!("  waiting    {part} process "));
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_are_shown_with_the_processes_that_hold_them() {
    let server = RedisServer::start();
    let quotas = ["4 concurrent", "600/m"];
    let one = limiter(&server, &quotas).await;
    let other = limiter(&server, &quotas).await;
    let hold = async |limiter: &Limiter| limiter.acquire("api").await.expect("a permit").hold();
    let places = [hold(&one).await, hold(&one).await, hold(&other).await];
    let shown = on(&server, "show api --json").json();
    let limit = json!({ "used": 3, "capacity": 4, "processes": 2 });
    let policy = json!({ "quotas": [limit, { "quota": "600/m" }],
        "remaining": { "concurrent-requests": 1 }, "full_seconds": null, "exact": true });
    assert_includes(&shown["policies"], &json!([policy]));
    let last = hold(&other).await;
    let text = on(&server, "show api").printed();
    for line in [
        "  used       4 of 4, by 4 concurrent lease=30s (2 processes)\n",
        "  next       when a place is free\n",
        "  full       when the requests in progress have ended\n",
    ] {
        assert_has(&text, line);
    }
    let shown = on(&server, "show api --json").json();
    let policy = json!({ "next_seconds": null });
    assert_includes(&shown["policies"], &json!([policy]));
    drop((places, last));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_limiter_obeys_pause_and_resume_of_an_idle_key_under_every_quota() {
    for (quotas, policy) in [
        (&["1/s"][..], ""),
        (&["10/h", "2/s"], "github"),
        (&["100/m gcra burst=20"], "github"),
        (&["5/h fixed-window"], "github"),
        (&["5000/s"], "github"),
    ] {
        let server = RedisServer::start();
        let builder = under(quotas).store(server.store().await);
        let (limiter, paused) = match policy {
            "" => {
                let paused = on(&server, "pause api 1h --json");
                (build(builder), paused.failed_json(0, "`--policy NAME`"))
            }
            policy => {
                let line = format!("pause api 1h --json --policy {policy}");
                let paused = on(&server, &line).failed_json(0, "check both names");
                (build(builder.name(policy)), paused)
            }
        };
        let expected = json!([{ "longer": false, "paused_seconds": 3_600.0 }]);
        assert_includes(&paused["policies"], &expected);
        assert!(!is_granted(&limiter).await, "{quotas:?}");
        let shown = on(&server, &format!("show api --json --policy={policy}")).json();
        // The limiter's quotas have replaced the placeholder.
        let shown = shown["policies"][0]["quotas"].as_array().map(Vec::len);
        assert_eq!(shown, Some(quotas.len()));
        let waiting =
            tokio::spawn(async move { limiter.acquire("api").await.map(|_| Instant::now()) });
        let before = Instant::now();
        let resumed = on(&server, "resume api --json").json();
        assert_includes(&resumed["policies"], &json!([{ "resumed": true }]));
        let departed = timeout(LONG, waiting).await.expect("in time");
        assert!(departed.expect("no panic").expect("a permit") >= before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_clears_the_key_under_every_recovery() {
    for (recovery, is_strict) in [(Recovery::default(), false), (Recovery::Strict, true)] {
        let server = RedisServer::start();
        let builder = under(&["100/h"]).recovery(recovery);
        let limiter = build(builder.store(server.store().await));
        // Under strict recovery, a new server puts all keys in quarantine.
        let mut granted = 0;
        while is_granted(&limiter).await {
            granted += 1;
        }
        assert_eq!(granted, if is_strict { 0 } else { 100 });
        let shown = on(&server, "show api").printed();
        for line in ["\n  quarantine for ", "\n  generation "] {
            assert_eq!(shown.contains(line), is_strict, "{shown}");
        }
        let shown = on(&server, "show api --json").json();
        let policy = &shown["policies"][0];
        assert_eq!(policy["generation"].is_object(), is_strict, "{shown}");
        let quarantine = &policy["quarantined_seconds"];
        assert_eq!(quarantine.is_number(), is_strict, "{shown}");
        let reset = on(&server, "reset api --yes --json").json();
        let policies = json!([{ "policy": null, "foreign": false, "error": null }]);
        assert_eq!(reset["policies"], policies);
        if !is_strict {
            let fresh = timeout(LONG, limiter.acquire("api")).await;
            fresh.expect("in time").expect("a permit");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_asks_for_confirmation() {
    let server = RedisServer::start();
    let url = server.url();
    spend(&server.store().await, under(&["10/h"]), "api", 3).await;
    for (answer, code, used) in [("\r", 1, 3), ("n\r", 1, 3), ("y\r", 0, 0)] {
        let (mut screen, mut reset) = Screen::with(&["reset", "api", "--redis", &url], 80, 24);
        screen.wait_for("Reset the key \"api\" for 10/h? [y/N] ");
        screen.type_keys(answer);
        assert_eq!(ends(&mut reset).code(), Some(code), "{answer:?}");
        let shown = on(&server, "show api --json").json();
        let policies = json!([{ "quotas": [{ "used": used }] }]);
        assert_includes(&shown["policies"], &policies);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_digest_can_be_shown_but_not_changed() {
    let server = RedisServer::start();
    let long = "long/".repeat(40);
    spend(&server.store().await, under(&["10/h"]), &long, 3).await;
    let shown = on(&server, &format!("show {long} --json")).json();
    let digest = shown["policies"][0]["encoded"].as_str().expect("text");
    assert!(digest.starts_with("%sha256:"), "{shown}");
    let same = on(&server, &format!("show {digest} --json")).json();
    let policies = json!([{ "key": null, "quotas": [{ "used": 3 }] }]);
    for shown in [&shown, &same] {
        assert_includes(&shown["policies"], &policies);
    }
    for line in ["pause {} 1s", "reset {} --yes"] {
        on(&server, &line.replace("{}", digest)).failed(2, &["the digest of a key"]);
    }
    let paused = on(&server, &format!("pause {long} 1h --json")).json();
    assert_includes(&paused["policies"], &json!([{ "paused_seconds": 3_600.0 }]));
    // A key may look like a digest.
    on(&server, "pause %sha256:a 1h --policy p --json").failed_json(0, "check both names");
    let resumed = on(&server, "resume %sha256:a").printed();
    assert!(resumed.ends_with("was resumed\n"), "{resumed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn special_keys_and_prefixes_are_found() {
    let server = RedisServer::start();
    let store = server.store().await.prefix("other*").expect("a prefix");
    for key in ["GET /a/{b}|x", "é*[?]", "a b"] {
        spend(&store, under(&["3/h"]), key, 1).await;
        let show = |options| {
            let mut command = throttle(&["show", key, "--redis", &server.url()]);
            Ended::of(command.args(words(options)))
        };
        let shown = show("--prefix other* --json").json();
        assert_includes(&shown["policies"], &json!([{ "key": key }]));
        show("").failed(1, &["there is no state"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_all_servers_of_a_cluster_are_found() {
    let cluster = Cluster::start();
    let store = cluster.store().await;
    let url = cluster.servers[4].url();
    let on_cluster = |line: String| run(&format!("{line} --json --cluster --redis {url}")).json();
    for key in cluster.keys_of_each() {
        spend(&store, under(&["3/h"]), &key, 1).await;
        let show = || on_cluster(format!("show {key}"))["policies"][0].clone();
        assert_eq!(show()["remaining"]["requests"], 2);
        on_cluster(format!("pause {key} 1h"));
        assert!(show()["paused_seconds"].is_number());
        on_cluster(format!("reset {key} --yes"));
        assert_eq!(show()["remaining"]["requests"], 3);
    }
    for line in [
        "top --json --count 1",
        "show key",
        "pause key 1h",
        "resume key",
        "reset key --yes",
    ] {
        for server in &cluster.servers {
            let part = "the server belongs to a cluster\nhint: pass `--cluster`";
            on(server, line).failed(2, &[part]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guide_shows_the_real_output_of_show() {
    let (_, section) = GUIDE.split_once("\n# Look at a key\n").expect("a section");
    let block = section.split("```text\n").nth(1).expect("a block");
    let shown = block.split("```").next().expect("its end");
    // Numbers depend on the time.
    let without_numbers = |text: &str| {
        let parts = text.split(|char: char| char.is_ascii_digit() || "._".contains(char));
        let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        parts.join("#")
    };
    let server = RedisServer::start();
    let store = server.store().await;
    spend(&store, under(&["10/m"]), "api.example.com", 10).await;
    on(&server, "pause api.example.com 30s").printed();
    let printed = on(&server, "show api.example.com").printed();
    let [printed, shown] = [&*printed, shown].map(without_numbers);
    assert_eq!(printed, shown);
}
