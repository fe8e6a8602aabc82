//! Measures many users with a quota of 2 per 30 s.

use std::time::Duration;

use anyhow::ensure;
use futures_util::future::try_join_all;
use redis::Cmd;
use support::redis_server::RedisServer;
use tower_throttle::{Algorithm, Limiter, Quota, WindowStart};
use tower_throttle_benches::{Output, Table, begin, figure, store, text};

use crate::{ORIGIN, command, length, send, usage};

const USERS: u64 = 100;
/// User numbers have six digits.
const FIRST: u64 = 123_456;
const MOST_BYTES: f64 = 88.0;

/// A scheme, and the command for the request with this number; requests are 7 s apart.
type Scheme = (&'static str, fn(name: &str, number: u64) -> Cmd);

const SCHEMES: [Scheme; 4] = [
    ("sorted set", |name, number| {
        let time = ORIGIN + number * 7_000_000;
        command(&["ZADD", name], &[time, time])
    }),
    ("hash, a field per second", |name, number| {
        let second = ORIGIN / 1_000_000 + number * 7;
        command(&["HINCRBY", name], &[second, 1])
    }),
    ("number", |name, number| {
        command(&["SET", name], &[ORIGIN + number * 7_000_000])
    }),
    ("counter", |name, _| command(&["INCR", name], &[])),
];

pub(crate) async fn measure(server: &RedisServer, output: &mut Output) -> anyhow::Result<()> {
    let fixed = Algorithm::FixedWindow {
        start: WindowStart::Clock,
    };
    // The wait for a second departure by spacing would end the life of the first.
    let algorithms = [
        ("sliding log", Algorithm::SlidingLog, 2),
        (
            "sliding buckets",
            Algorithm::SlidingBuckets { buckets: 10 },
            2,
        ),
        ("spacing", Algorithm::Spacing, 1),
        ("leaky bucket", Algorithm::LeakyBucket { capacity: 10 }, 1),
        ("GCRA", Algorithm::Gcra { burst: 2 }, 2),
        ("fixed window", fixed, 2),
    ];
    let mut table = Table::new(
        "bytes per user after 2 requests of a quota of 2 per 30 s",
        "state | value | MEMORY USAGE",
    );
    for (state, algorithm, requests) in algorithms {
        begin(state);
        let quota = Quota::new(2, Duration::from_secs(30)).algorithm(algorithm);
        let limiter = Limiter::builder().store(store(server).await?).quota(quota);
        let limiter = limiter.build()?;
        server.command::<()>(&["FLUSHALL", "SYNC"]);
        for _ in 0..requests {
            let users = FIRST..FIRST + USERS;
            try_join_all(users.map(|user| limiter.acquire(format!("user:{user}")))).await?;
        }
        let names: Vec<String> = server.command(&["KEYS", "*"]);
        let keys = names.len() as u64;
        ensure!(keys == USERS, "{keys} keys of {USERS} users");
        let value = length(server, &names);
        let state = format!("tower-throttle, {state}");
        table.row([text(state), figure(value), figure(usage(server, &names))]);
        if algorithm == Algorithm::SlidingLog {
            let claim = "value in Redis, 2 requests per 30 s, bytes";
            output.at_most(claim, value, MOST_BYTES);
        }
    }
    for (state, record) in SCHEMES {
        begin(state);
        let names = (FIRST..FIRST + USERS).map(|user| format!("throttle:{user}"));
        let names: Vec<String> = names.collect();
        server.command::<()>(&["FLUSHALL", "SYNC"]);
        for number in 0..2 {
            let commands = names
                .iter()
                .flat_map(|name| [record(name, number), command(&["EXPIRE", name], &[60])]);
            send(server, commands)?;
        }
        table.row([text(state), text(""), figure(usage(server, &names))]);
    }
    output.table(&table);
    Ok(())
}
