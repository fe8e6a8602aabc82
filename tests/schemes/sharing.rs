//! One server for many: processes, keys, a cluster, scripts or none.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream;
use futures_util::stream::StreamExt as _;
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Release, Store as _};
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Quota, WindowStart};

use crate::support::child;
use crate::support::keyspace::{assert_all_expire, names, start_cluster, wait_until_empty};
use crate::support::monitor::Monitor;
use crate::support::redis_server::RedisServer;
use crate::support::slots::slots;
use crate::{LONG, MS, PATIENCE, ask, depart, granted, limiter, policy, quota, reserve, store};

/// The usual way without scripts adds itself, counts, and removes itself again: callers get into each
/// other's way, and all of them wake at the same moment to try once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_the_limit_holds_and_who_waits_sends_nothing() {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "plain", "on", ">secret", "~*"];
    server.command::<()>(&[&user[..], &["+@all", "-@scripting"]].concat());
    let url = format!("redis://plain:secret@127.0.0.1:{}/", server.port());
    let mut departures = Vec::new();
    for _ in 0..3 {
        let store = RedisStore::connect(&url).await.expect("a connection");
        let store = store.timeout(PATIENCE).scripting(false);
        let builder = quota(10, MS(300), Algorithm::SlidingLog);
        let builder = builder.store(store.expect("a store that connected"));
        let limiter = builder.build().expect("a valid policy");
        departures.extend((0..20).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { depart(&limiter, "a").await })
        }));
    }
    let departures = join_all(departures).await.into_iter();
    let history: History = departures.map(|at| at.expect("no panic")).collect();
    assert_eq!(history.len(), 60);
    history.assert_at_most(10, MS(300));
    let info = server.command::<String>(&["INFO", "commandstats"]);
    let attempts = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_watch:calls="));
    let attempts = attempts.and_then(|line| line.split(',').next()?.parse().ok());
    assert!(
        attempts.is_some_and(|attempts: usize| attempts < 60),
        "{attempts:?}"
    );
}

/// Elsewhere the processes share by convention; here also what they leave behind.
#[test]
fn three_processes_share_one_quota_under_one_prefix_and_leave_nothing() {
    let server = RedisServer::start();
    let url = server.url();
    let monitor = Monitor::start(&server);
    let mut replicas = [(); 3].map(|()| child::spawn("sharing::replica", &url, &[]));
    replicas.iter_mut().for_each(|replica| replica.tell("go"));
    let departed = replicas.map(|replica| replica.finish(PATIENCE)).concat();
    let micros = departed.iter().map(|at| at.parse().expect("a number"));
    let history: History = micros.map(Duration::from_micros).collect();
    assert_eq!(history.len(), 90);
    history.assert_at_most(20, MS(300));

    let seen = monitor.finish(&server);
    let calls = seen.commands.iter().filter(|sent| sent.name == "evalsha");
    let mut senders = BTreeSet::new();
    for call in calls {
        assert!(call.text.contains("\"fleet:{a}:"), "{}", call.text);
        senders.extend((call.sender != "lua").then_some(&call.sender));
    }
    assert_eq!(senders.len(), 3);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(wait_until_empty(&server));
}

#[tokio::test]
#[ignore = "started by another test as a process of its own"]
async fn replica() {
    let Some(url) = child::role() else { return };
    let store = RedisStore::connect(&url).await.expect("a connection");
    let store = store
        .prefix("fleet")
        .expect("a valid prefix")
        .timeout(PATIENCE);
    let builder = quota(20, MS(300), Algorithm::SlidingLog).store(store);
    let limiter = builder.build().expect("a valid policy");
    assert_eq!(child::hear(), "go");
    for at in join_all((0..30).map(|_| depart(&limiter, "a"))).await {
        child::say(at.as_micros());
    }
}

/// One by one and all at once, none is taken for another, and none is lost.
#[tokio::test]
async fn many_keys_are_all_counted_right() {
    const KEYS: usize = 20_000;
    let server = RedisServer::start();
    let store = store(&server).await;
    let policy = policy(quota(2, LONG, Algorithm::SlidingLog));
    let before = used_memory(&server);
    for (count, expected) in [(1, 1), (2, 1)] {
        let call = async |number: usize| {
            let key = Key::from(format!("user-{number}"));
            let answer = reserve(&store, &key, &policy, &[ask(count, 0)]).await;
            granted(&answer).len()
        };
        let granted = stream::iter(0..KEYS).map(call).buffer_unordered(500);
        let wrong = granted.filter(|&granted| async move { granted != expected });
        assert_eq!(wrong.count().await, 0);
    }
    assert_eq!(server.command::<usize>(&["DBSIZE"]), KEYS);
    let each = used_memory(&server).saturating_sub(before) / KEYS as u64;
    assert!(each < 300, "{each} bytes for each key");
    assert_all_expire(&server);
}

fn used_memory(server: &RedisServer) -> u64 {
    let info: String = server.command(&["INFO", "memory"]);
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    line.expect("a line").trim().parse().expect("a number")
}

/// Elsewhere `CROSSSLOT`, unless the user thinks of the braces.
#[tokio::test]
async fn all_keys_of_one_call_lie_in_one_hash_slot() {
    let server = start_cluster().await;
    let across = server.try_command::<i64>(&["EVAL", "return 1", "2", "a", "b"]);
    let refusal = across
        .expect_err("the server looks at hash slots")
        .to_string();
    assert!(refusal.to_lowercase().contains("slot"), "{refusal}");

    let connection = server.client().get_multiplexed_async_connection().await;
    let store = RedisStore::from(connection.expect("a connection")).timeout(PATIENCE);
    let all = [
        Algorithm::SlidingBuckets { buckets: 10 },
        Algorithm::Spacing,
        Algorithm::LeakyBucket { capacity: 50 },
        Algorithm::Gcra { burst: 5 },
        Algorithm::FixedWindow {
            start: WindowStart::Clock,
        },
    ];
    let joint = all.into_iter().fold(
        quota(10, LONG, Algorithm::SlidingLog),
        |joint, algorithm| joint.quota(Quota::new(10, LONG).algorithm(algorithm)),
    );
    let policy = policy(joint);
    let mut hash_slots = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for text in [
        "a", "b", "user:7", "{a}", "}{", "a}b{c", "{}", "", "{a}{b}", "é", "*",
    ] {
        let key = Key::from(format!("{text}."));
        let held = slots(&store, &key, &policy, 5).await;
        // One from the middle, so that there is a key for free slots too.
        let release = Release::new(&key, &policy, &held[2..3]);
        store.release(&release).await.expect("an answer");
        let names = names(&server);
        let of_key: Vec<_> = names.difference(&seen).cloned().collect();
        assert_eq!(of_key.len(), 7, "{text:?} has names of its own: {of_key:?}");
        let slot_of = |name: &String| server.command::<u16>(&["CLUSTER", "KEYSLOT", name]);
        let slots: BTreeSet<_> = of_key.iter().map(slot_of).collect();
        assert_eq!(slots.len(), 1, "{of_key:?}");
        hash_slots.extend(slots);
        seen = names;
        store.reset(&key, &policy).await.expect("an answer");
        seen.retain(|name| !of_key.contains(name));
    }
    assert!(hash_slots.len() > 5, "keys are spread: {hash_slots:?}");
}

/// Elsewhere the text goes over the wire with every call.
#[tokio::test]
async fn scripts_are_sent_once_and_again_when_the_server_has_forgotten_them() {
    let server = RedisServer::start();
    // However late a busy machine wakes, no permit expires, and no slot is given back.
    let builder = quota(5_000, LONG, Algorithm::SlidingLog).guard(PATIENCE);
    let limiter = limiter(&server, builder).await;
    let loaded = async |calls: usize| {
        let monitor = Monitor::start(&server);
        for call in 0..calls {
            let decision = limiter.try_acquire(format!("key-{call}")).await;
            assert!(decision.expect("a decision").is_granted());
        }
        let seen = monitor.finish(&server);
        assert_eq!(seen.calls("eval"), 0);
        // All that go together at once.
        let again = seen.calls("script");
        assert_eq!(seen.calls("evalsha"), calls + again / 3);
        again
    };
    assert_eq!(loaded(50).await, 3);
    assert_eq!(loaded(50).await, 0);
    server.command::<()>(&["SCRIPT", "FLUSH"]);
    assert_eq!(loaded(50).await, 3);
}
