//! Measures full logs.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use redis::Cmd;
use support::redis_server::RedisServer;
use tokio::time::{Instant, sleep_until};
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::{Cell, Departures, Output, Table, begin, count, figure, store, text};

use crate::{ORIGIN, command, length, send, usage};

const LIMITS: [u32; 2] = [1_000, 10_000];
/// Number of requests that fill a log, with a part of the limit each.
const PARTS: u32 = 1_000;
/// An entry of a log has the same length for each window, so this one replaces an hour.
const WINDOW: Duration = Duration::from_secs(12);
const MOST_BYTES: f64 = 10_500.0;

/// A scheme, and the command for the requests with these numbers; requests are a millisecond apart.
type Scheme = (&'static str, fn(name: &str, numbers: Range<u64>) -> Cmd);

const SCHEMES: [Scheme; 3] = [
    ("sorted set", |name, numbers| {
        let times = numbers.map(|number| ORIGIN + number * 1_000);
        let pairs: Vec<u64> = times.flat_map(|time| [time, time]).collect();
        command(&["ZADD", name], &pairs)
    }),
    ("hash, a field per ms", |name, numbers| {
        let times = numbers.map(|number| ORIGIN / 1_000 + number);
        let pairs: Vec<u64> = times.flat_map(|time| [time, 1]).collect();
        command(&["HSET", name], &pairs)
    }),
    ("list of times", |name, numbers| {
        let times = numbers.map(|number| ORIGIN + number * 1_000);
        command(&["RPUSH", name], &times.collect::<Vec<_>>())
    }),
];

pub(crate) async fn measure(server: &RedisServer, output: &mut Output) -> anyhow::Result<()> {
    let mut table = Table::new(
        "bytes of a full log",
        "log | N | value | MEMORY USAGE | per request",
    );
    begin("filling logs");
    server.command::<()>(&["FLUSHALL", "SYNC"]);
    let store = store(server).await?;
    try_join_all(LIMITS.map(|limit| fill(&store, limit))).await?;
    let names: Vec<String> = server.command(&["KEYS", "*"]);
    for limit in LIMITS {
        let name = names.iter().find(|name| name.contains(&key(limit)));
        let name = [name.context("a log without a key")?.clone()];
        let mut row = |name: &str, value: Cell, usage: f64| {
            let per_request = figure(usage / f64::from(limit));
            table.row([text(name), count(limit), value, figure(usage), per_request]);
        };
        let value = length(server, &name);
        row("tower-throttle", figure(value), usage(server, &name));
        if limit == 10_000 {
            let claim = "value in Redis, a full log of 10,000, bytes";
            output.at_most(claim, value, MOST_BYTES);
        }
        for (name, record) in SCHEMES {
            const PART: u64 = 100;
            let api = format!("{name}:{limit}");
            let parts = (0..u64::from(limit) / PART).map(|part| part * PART..(part + 1) * PART);
            send(server, parts.map(|part| record(&api, part)))?;
            row(name, text(""), usage(server, &[api]));
        }
    }
    output.table(&table);
    Ok(())
}

/// Spends the limit of a key within its window. Fails if it does not hold.
async fn fill(store: &RedisStore, limit: u32) -> anyhow::Result<()> {
    let limiter = Limiter::builder().store(store.clone());
    let limiter = limiter.quota(Quota::new(limit, WINDOW)).build()?;
    let (departures, start) = (Departures::default(), Instant::now());
    for part in 0..PARTS {
        // Less than a window, so that no departure has expired at the end.
        sleep_until(start + WINDOW * 9 / 10 * part / PARTS).await;
        let cost = limit / PARTS;
        let permit = limiter.acquire(key(limit)).cost(cost).await?;
        departures.record_cost(&permit, cost);
    }
    departures.check(limit, WINDOW)?;
    let more = limiter.try_acquire(key(limit)).await?;
    ensure!(!more.is_granted(), "a full log lets a request depart");
    Ok(())
}

fn key(limit: u32) -> String {
    format!("limit-{limit}-per-window")
}
