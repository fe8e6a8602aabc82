//! Faults of the server's data and its memory.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use crate::fault::{Fault, Lasts};
use crate::load::{KEYS, LIMIT};
use crate::stage::{Stage, refusal, wait_until};
use support::redis_server::RedisServer;

/// The values of those that fill the memory, a megabyte each.
const LARGE: [&str; 5] = ["filler:a", "filler:b", "filler:c", "filler:d", "filler:e"];

/// Where the server says what becomes of keys of the limiter's.
const KEYSPACE: &str = "__keyspace@0__:throttle:*";

/// Takes away what was written until state was evicted.
const UNFILL: &str = "for _, name in ipairs(redis.call('KEYS', 'filler:*')) do
      redis.call('UNLINK', name)
    end";

/// Said there by the test, in the end.
const END: &str = "__keyspace@0__:throttle:end";

pub(super) const FLUSHALL: Fault = Fault {
    name: "FLUSHALL",
    inject: |stage| stage.server().command(&["FLUSHALL"]),
    lasts: Lasts::UntilDeparted(2 * LIMIT as usize),
    ..Fault::FORGETS
};

pub(super) const DEL: Fault = Fault {
    name: "DEL",
    inject: |stage| {
        let mut names: Vec<String> = stage.server().command(&["KEYS", "throttle:*"]);
        assert!(names.len() >= KEYS, "{names:?}");
        names.insert(0, "DEL".to_owned());
        let words: Vec<_> = names.iter().map(String::as_str).collect();
        assert!(stage.server().command::<usize>(&words) >= KEYS);
    },
    lasts: Lasts::UntilDeparted(2 * LIMIT as usize),
    ..Fault::FORGETS
};

pub(super) const EVICTION: Fault = Fault {
    name: "eviction",
    inject: evict,
    lasts: Lasts::UntilDeparted(LIMIT as usize),
    heal: |stage| {
        let server = stage.server();
        limit_memory(server, 0);
        server.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        server.command::<()>(&["CONFIG", "SET", "notify-keyspace-events", ""]);
        server.command::<()>(&["EVAL", UNFILL, "0"]);
        let heard: usize = stage.server().command(&["PUBLISH", END, "evicted"]);
        assert_eq!(heard, 1);
    },
    most: |stage| Some((1 + stage.losses.load(Ordering::SeqCst) as u64) * LIMIT),
    ..Fault::PLAIN
};

pub(super) const FAULTS: &[Fault] = &[
    FLUSHALL,
    DEL,
    Fault {
        name: "OOM",
        inject: |stage| {
            let server = stage.server();
            let value = "x".repeat(1_000_000);
            for name in LARGE {
                server.command::<()>(&["SET", name, &value]);
            }
            // The server needs some of this memory to read commands.
            limit_memory(server, server.used_memory() - 2_000_000);
            assert_eq!(refusal(server, &["SET", "f", ""]).as_deref(), Some("OOM"));
        },
        heal: |stage| {
            let refusal = refusal(stage.server(), &["SET", "f", ""]);
            assert_eq!(refusal.as_deref(), Some("OOM"), "all the time");
            limit_memory(stage.server(), 0);
            let words = [&["UNLINK"], &LARGE[..]].concat();
            assert_eq!(stage.server().command::<usize>(&words), LARGE.len());
        },
        ..Fault::PLAIN
    },
    EVICTION,
];

/// 0 for as much as there is.
fn limit_memory(server: &RedisServer, most: u64) {
    server.command::<()>(&["CONFIG", "SET", "maxmemory", &most.to_string()]);
}

/// Writes other keys until the server has evicted the state of a key.
fn evict(stage: &mut Stage) {
    stage.losses.store(0, Ordering::SeqCst);
    let server = &stage.servers[0];
    server.command::<()>(&["CONFIG", "SET", "notify-keyspace-events", "Ke"]);
    server.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let (ready, is_ready) = mpsc::channel();
    let (client, losses) = (server.client(), stage.losses.clone());
    stage.beside.push(thread::spawn(move || {
        let mut connection = client.get_connection().expect("a connection");
        let mut heard = connection.as_pubsub();
        heard.psubscribe(KEYSPACE).expect("the right to it");
        ready.send(()).expect("a receiver");
        let mut counts = HashMap::new();
        loop {
            let message = heard.get_message().expect("a server that lives");
            let name = message.get_channel_name();
            if name == END {
                return;
            }
            let count: &mut usize = counts.entry(name.to_owned()).or_default();
            *count += 1;
            losses.fetch_max(*count, Ordering::SeqCst);
        }
    }));
    is_ready.recv().expect("a subscription");
    limit_memory(server, server.used_memory() + 1_000_000);
    let mut connection = server.client().get_connection().expect("a connection");
    let mut number = 0;
    wait_until("state is evicted", || {
        stage.losses.load(Ordering::SeqCst) > 0 || {
            let mut pipe = redis::pipe();
            for _ in 0..200 {
                number += 1;
                pipe.set(format!("filler:{number}"), "x".repeat(1_000))
                    .ignore();
            }
            let () = pipe.query(&mut connection).expect("room, as others go");
            false
        }
    });
}
