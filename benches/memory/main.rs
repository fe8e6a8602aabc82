//! Measures the memory of state in Redis.
//!
//! | table | content |
//! | --- | --- |
//! | users | many users with a quota of 2 per 30 s, after two requests of each |
//! | logs | full logs of 1,000 and 10,000 requests |
//!
//! A limiter creates its state on its own `redis-server`. Memory is the length of the values, and their `MEMORY USAGE`.

use futures_util::future::try_join_all;
use tower_throttle::store::RedisStore;
use tower_throttle_benches::*;

const USERS: u64 = 100;
/// User numbers have six digits.
const FIRST: u64 = 123_456;
const MOST_BYTES_OF_USER: f64 = 88.0;

const LIMITS: [u32; 2] = [1_000, 10_000];
/// Number of requests that fill a log, with a part of the limit each.
const PARTS: u32 = 1_000;
/// An entry of a log has the same length for each window, so this one replaces an hour.
const WINDOW: Duration = Duration::from_secs(12);
const MOST_BYTES_OF_LOG: f64 = 10_500.0;

fn main() -> anyhow::Result<()> {
    measure(0, async |output| {
        let server = RedisServer::start();
        users(&server, output).await?;
        logs(&server, output).await
    })
}

async fn users(server: &RedisServer, output: &mut Output) -> anyhow::Result<()> {
    let fixed = Algorithm::FixedWindow {
        start: WindowStart::Clock,
    };
    let buckets = Algorithm::SlidingBuckets { buckets: 10 };
    // The wait for a second departure by spacing would end the life of the first.
    let algorithms = [
        ("sliding log", Algorithm::SlidingLog, 2),
        ("sliding buckets", buckets, 2),
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
        eprintln!("{state}");
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
        let [value, usage] = bytes(server, &names);
        table.row([text(state), figure(value), figure(usage)]);
        if algorithm == Algorithm::SlidingLog {
            let claim = "value in Redis, 2 requests per 30 s, bytes";
            output.at_most(claim, value, MOST_BYTES_OF_USER);
        }
    }
    println!("{table}");
    Ok(())
}

async fn logs(server: &RedisServer, output: &mut Output) -> anyhow::Result<()> {
    let mut table = Table::new(
        "bytes of a full log",
        "N | value | MEMORY USAGE | per request",
    );
    eprintln!("filling logs");
    server.command::<()>(&["FLUSHALL", "SYNC"]);
    let store = store(server).await?;
    try_join_all(LIMITS.map(|limit| fill_log(&store, limit))).await?;
    for limit in LIMITS {
        let names: Vec<String> = server.command(&["KEYS", &format!("*{}*", key(limit))]);
        let [value, usage] = bytes(server, &names);
        let per_request = figure(usage / f64::from(limit));
        table.row([count(limit), figure(value), figure(usage), per_request]);
        if limit == 10_000 {
            let claim = "value in Redis, a full log of 10,000, bytes";
            output.at_most(claim, value, MOST_BYTES_OF_LOG);
        }
    }
    println!("{table}");
    Ok(())
}

/// Spends the limit of a key within its window. Fails if it does not hold.
async fn fill_log(store: &RedisStore, limit: u32) -> anyhow::Result<()> {
    let quota = Quota::new(limit, WINDOW);
    let limiter = Limiter::builder().store(store.clone()).quota(quota);
    let limiter = limiter.build()?;
    // Less than a window, so that no departure has expired at the end.
    let span = (Instant::now(), WINDOW * 9 / 10);
    let departures = fill(&limiter, &key(limit), limit, PARTS, span).await?;
    departures.check(&quota)?;
    let more = limiter.try_acquire(key(limit)).await?;
    ensure!(!more.is_granted(), "a full log lets a request depart");
    Ok(())
}

fn key(limit: u32) -> Key {
    Key::new(format!("limit-{limit}-per-window"))
}

/// The mean length of the values of these keys, which are strings, and their mean `MEMORY USAGE` without sampling.
fn bytes(server: &RedisServer, names: &[String]) -> [f64; 2] {
    let commands = [
        (&["STRLEN"][..], &[][..]),
        (&["MEMORY", "USAGE"], &["SAMPLES", "0"]),
    ];
    commands.map(|(words, more)| {
        let results = names.iter().map(|name| {
            let words = [words, &[name], more].concat();
            server.command::<u64>(&words) as f64
        });
        results.sum::<f64>() / names.len() as f64
    })
}
