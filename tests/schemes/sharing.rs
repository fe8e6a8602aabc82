//! One server for many processes and keys, with scripts and without.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream;
use futures_util::stream::StreamExt as _;
use tower_throttle::Algorithm;
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;

use crate::schemes::{LONG, MS, PATIENCE, depart, limiter, quota};
use support::child;
use support::keyspace::{assert_all_expire, wait_until_empty};
use support::monitor::Monitor;
use support::redis_server::RedisServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_the_limit_holds_and_waiting_requests_send_nothing() {
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

#[test]
fn three_processes_share_one_quota_under_one_prefix_and_leave_nothing() {
    let server = RedisServer::start();
    let url = server.url();
    let monitor = Monitor::start(&server);
    let mut replicas = [(); 3].map(|()| child::spawn("schemes::sharing::replica", &url, &[]));
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
        assert!(call.text.contains("\"fleet:{a}\""), "{}", call.text);
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

#[tokio::test]
async fn many_keys_are_all_counted_right() {
    const KEYS: usize = 5_000;
    let server = RedisServer::start();
    let builder = quota(2, LONG, Algorithm::SlidingLog).denial_cache(0);
    let limiter = limiter(&server, builder).await;
    let before = server.used_memory();
    for expected in [true, true, false] {
        let call = async |number: usize| {
            let decision = limiter.try_acquire(format!("user-{number}")).await;
            decision.expect("a decision").is_granted()
        };
        let granted = stream::iter(0..KEYS).map(call).buffer_unordered(500);
        let wrong = granted.filter(|&granted| async move { granted != expected });
        assert_eq!(wrong.count().await, 0);
    }
    assert_eq!(server.command::<usize>(&["DBSIZE"]), KEYS);
    let each = server.used_memory().saturating_sub(before) / KEYS as u64;
    assert!(each < 400, "{each} bytes for each key");
    assert_all_expire(&server);
}
