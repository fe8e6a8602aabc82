//! What is read of values that are huge, strange, or never still.

use std::sync::atomic::{AtomicBool, Ordering};

use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::StoredKey;

use super::keys::{all, connect, policy, spend};
use crate::support::errors::bounded;
use crate::support::redis_server::RedisServer;
use crate::support::slots::slots;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stranger_has_written_is_said_of_that_key_alone() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    spend(&store, 5).await;
    server.command::<()>(&["HSET", "throttle:{hash}:10/s", "a", "1"]);
    server.command::<()>(&["SET", "throttle:{text}:10/s", "hello"]);
    server.command::<()>(&["SETRANGE", "throttle:{long}:10/s", "2000", "x"]);
    let keys: Vec<_> = all(store.keys()).await.into_iter().collect();
    assert_eq!(keys.len(), 9);
    for states in [store.glance(&keys).await, store.look(&keys).await] {
        for (key, state) in keys.iter().zip(states) {
            let is_strange = ["hash", "text", "long"].contains(&key.encoded());
            assert_eq!(state.is_err(), is_strange, "{key:?}: {state:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_glance_at_what_is_huge_reads_little_of_it() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    let ids = [
        "10/h",
        "200/h",
        "2000/h-buckets-1000",
        "10/h-gcra-5",
        "10/h-spacing",
    ];
    let keys: Vec<_> = ids
        .iter()
        .flat_map(|id| [("first", ""), ("aside", ":aside")].map(|(tag, end)| (id, tag, end)))
        .map(|(id, tag, end)| {
            let name = format!("throttle:{{{tag}}}:{id}{end}");
            server.command::<()>(&["SETRANGE", &name, "10000000", "x"]);
            let policy = Policy::from_id(id).expect("an id");
            StoredKey::new(&tag.into(), &policy)
        })
        .collect();
    let sent = || {
        let info: String = server.command(&["INFO", "stats"]);
        let mut lines = info.lines();
        let sent = lines.find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        sent.expect("a line").parse::<u64>().expect("a number")
    };
    let before = sent();
    for (key, state) in keys.iter().zip(store.glance(&keys).await) {
        let error = state.expect_err("more than any state");
        assert!(!error.is_outage(), "{key:?}: {error}");
    }
    let sent = sent() - before;
    // Of a server of which each key alone has ten times as much; those are asked for twice that are as long.
    assert!(sent < 2_000_000, "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_hot_is_never_taken_for_a_strangers() {
    let server = RedisServer::start();
    let (store, other) = (connect(&server).await, connect(&server).await);
    let (key, policy) = (Key::from("hot"), policy("300/s", "a"));
    let stored = [StoredKey::new(&key, &policy)];
    slots(&store, &key, &policy, 300).await;
    let is_over = AtomicBool::new(false);
    let hammer = async {
        while !is_over.load(Ordering::Relaxed) {
            slots(&other, &key, &policy, 20).await;
        }
    };
    let glances = async {
        for _ in 0..500 {
            let state = bounded(store.glance(&stored)).await.remove(0);
            let state = state.expect("a state");
            assert!(state.spent()[0].used() > 0, "{state:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(hammer, glances);
}
