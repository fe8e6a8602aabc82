//! Faults of the server's data and its memory.

use crate::load::{KEYS, LIMIT};
use crate::prelude::*;

/// The values of those that fill the memory, a megabyte each.
const LARGE: [&str; 5] = ["filler:a", "filler:b", "filler:c", "filler:d", "filler:e"];

pub(super) const FLUSHALL: Fault = Fault::new("FLUSHALL", |it| it.server().command(&["FLUSHALL"]))
    .until_departed(2)
    .forgets();

pub(super) const DEL: Fault = Fault::new("DEL", |setup| {
    let mut names: Vec<String> = setup.server().command(&["KEYS", "throttle:*"]);
    assert!(names.len() >= KEYS, "{names:?}");
    names.insert(0, "DEL".to_owned());
    let words: Vec<_> = names.iter().map(String::as_str).collect();
    assert!(setup.server().command::<usize>(&words) >= KEYS);
})
.until_departed(2)
.forgets();

pub(super) const EVICTION: Fault = Fault::new("eviction", |setup| {
    let server = setup.server();
    server.command::<()>(&["CONFIG", "RESETSTAT"]);
    // It evicts keys that have an expiry, and all keys of the limiter have one.
    server.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    limit_memory(server, server.info("used_memory") - 1);
    wait_until("state is evicted", || evicted(server) > 0);
    limit_memory(server, 0);
})
.until_departed(1)
.heal(|setup| {
    let words = ["CONFIG", "SET", "maxmemory-policy", "noeviction"];
    setup.server().command(&words)
})
.most(|setup| Some((1 + evicted(&setup.servers[0])) * LIMIT));

const OOM: Fault = Fault::new("OOM", |setup| {
    let server = setup.server();
    let value = "x".repeat(1_000_000);
    for name in LARGE {
        server.command::<()>(&["SET", name, &value]);
    }
    // The server needs some of this memory to read commands.
    limit_memory(server, server.info("used_memory") - 2_000_000);
    assert_eq!(refusal(server, &["SET", "f", ""]).as_deref(), Some("OOM"));
})
.heal(|setup| {
    let refusal = refusal(setup.server(), &["SET", "f", ""]);
    assert_eq!(refusal.as_deref(), Some("OOM"), "all the time");
    limit_memory(setup.server(), 0);
    let words = [&["UNLINK"], &LARGE[..]].concat();
    assert_eq!(setup.server().command::<usize>(&words), LARGE.len());
});

pub(super) const FAULTS: &[Fault] = &[FLUSHALL, DEL, OOM, EVICTION];

/// 0 for as much as there is.
fn limit_memory(server: &RedisServer, most: u64) {
    server.command::<()>(&["CONFIG", "SET", "maxmemory", &most.to_string()]);
}

fn evicted(server: &RedisServer) -> u64 {
    server.info("evicted_keys")
}
