//! Measures many users with a quota of 2 per 30 s.

use std::time::Duration;

use anyhow::ensure;
use futures_util::future::try_join_all;
use redis::Cmd;
use tower_throttle::store::RedisStore;
use tower_throttle::{Algorithm, Limiter, Quota, WindowStart};
use tower_throttle_benches::support::{Cell, Output, Progress, Table};

use crate::gauge::Gauge;
use crate::{ORIGIN, command};

const USERS: u64 = 100;
/// User numbers have six digits.
const FIRST: u64 = 123_456;
const LOG: &str = "sliding log";
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

pub(crate) async fn measure(
    gauge: &mut Gauge,
    store: &RedisStore,
    output: &mut Output,
) -> anyhow::Result<()> {
    let algorithms = [
        (LOG, Algorithm::SlidingLog),
        ("sliding buckets", Algorithm::SlidingBuckets { buckets: 10 }),
        ("spacing", Algorithm::Spacing),
        ("leaky bucket", Algorithm::LeakyBucket { capacity: 10 }),
        ("GCRA", Algorithm::Gcra { burst: 2 }),
        (
            "fixed window",
            Algorithm::FixedWindow {
                start: WindowStart::Clock,
            },
        ),
    ];
    let mut table = Table::new(
        "bytes per user after 2 requests of a quota of 2 per 30 s",
        &["state", "value", "MEMORY USAGE"],
    );
    let mut progress = Progress::new(algorithms.len() + SCHEMES.len());
    for (state, algorithm) in algorithms {
        progress.begin(state);
        let quota = Quota::new(2, Duration::from_secs(30)).algorithm(algorithm);
        let limiter = Limiter::builder().store(store.clone()).quota(quota);
        // The wait for a second departure by spacing would end the life of the first.
        let requests = match algorithm {
            Algorithm::Spacing | Algorithm::LeakyBucket { .. } => 1,
            _ => 2,
        };
        let limiter = limiter.build()?;
        gauge.clear().await?;
        for _ in 0..requests {
            let users = FIRST..FIRST + USERS;
            try_join_all(users.map(|user| limiter.acquire(format!("user:{user}")))).await?;
        }
        let names = gauge.names().await?;
        let keys = names.len() as u64;
        ensure!(keys == USERS, "{keys} keys of {USERS} users");
        let value = gauge.length(&names).await?;
        table.row([
            Cell::text(format!("tower-throttle, {state}")),
            Cell::Figure(value),
            Cell::Figure(gauge.usage(&names).await?),
        ]);
        if state == LOG {
            let claim = "value in Redis, 2 requests per 30 s, bytes";
            output.at_most(claim, value, MOST_BYTES);
        }
    }
    for (state, record) in SCHEMES {
        progress.begin(state);
        let names = (FIRST..FIRST + USERS).map(|user| format!("throttle:{user}"));
        let names: Vec<String> = names.collect();
        gauge.clear().await?;
        for number in 0..2 {
            let commands = names
                .iter()
                .flat_map(|name| [record(name, number), command(&["EXPIRE", name], &[60])]);
            gauge.send(commands).await?;
        }
        table.row([
            Cell::text(state),
            Cell::text(""),
            Cell::Figure(gauge.usage(&names).await?),
        ]);
    }
    output.table(&table);
    Ok(())
}
