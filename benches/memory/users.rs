//! Measures many users with a quota of 2 per 30 s.

use std::time::Duration;

use anyhow::ensure;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::Cmd;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota};

use crate::gauge::{Gauge, growth};
use crate::schemes::{HASH, NUMBER, SCHEMES, Scheme, expire};
use tower_throttle_benches::support::{Cell, Output, Progress, Table, algorithms, limiter};

const USERS: u64 = 100_000;
/// User numbers have six digits, which occur only once in a name.
const FIRST: u64 = 123_456;
/// Number of concurrent calls.
const CALLS: usize = 512;
/// Number of users that `MEMORY USAGE` measures.
const ASKED: u64 = 100;

/// Bytes per user after one request and after two, by `MEMORY USAGE` and by `used_memory`.
struct Bytes {
    state: &'static str,
    name: String,
    usage: [f64; 2],
    used: [f64; 2],
}

pub(crate) async fn measure(
    gauge: &mut Gauge,
    store: &RedisStore,
    output: &mut Output,
) -> anyhow::Result<()> {
    let users = output.options().count(USERS);
    let mut progress = Progress::new(algorithms(2).len() + SCHEMES.len());
    let mut all = Vec::new();
    for (state, algorithm) in algorithms(2) {
        progress.begin(&format!("users, {state}"));
        let quota = Quota::new(2, Duration::from_secs(30)).algorithm(algorithm);
        all.push(ours(gauge, state, &limiter(store, quota)?, users).await?);
    }
    for scheme in &SCHEMES {
        progress.begin(&format!("users, {}", scheme.name));
        let same = all.iter().find(|bytes| bytes.state == scheme.beside);
        let same = same.map(|bytes| bytes.name.clone());
        for name in same.into_iter().chain(["throttle:USER".to_owned()]) {
            all.push(theirs(gauge, scheme, name, users).await?);
        }
    }
    let mut table = Table::new(
        "bytes per user with 2 requests per 30 s",
        &[
            "state",
            "key",
            "1 request by MEMORY USAGE",
            "by used_memory",
            "2 requests by MEMORY USAGE",
            "2 by used_memory",
        ],
    );
    for bytes in &all {
        let figures = (0..2).flat_map(|i| [bytes.usage[i], bytes.used[i]]);
        let text = [Cell::text(bytes.state), Cell::text(bytes.name.clone())];
        table.row(text.into_iter().chain(figures.map(Cell::Figure)));
    }
    output.table(&table);
    judge(&all, output);
    Ok(())
}

fn judge(all: &[Bytes], output: &mut Output) {
    for (state, scheme, more) in [
        ("sliding log", HASH, 1.0),
        // The two requests of some users fall into different buckets.
        ("sliding buckets", HASH, 1.01),
        ("gcra", NUMBER, 1.0),
    ] {
        for ours in all.iter().filter(|bytes| bytes.state == state) {
            for theirs in all.iter().filter(|bytes| bytes.state == scheme) {
                if scheme == NUMBER && theirs.name != ours.name {
                    continue;
                }
                let claim = |by| format!("{state} relative to {scheme} as {}, {by}", theirs.name);
                output.at_most(claim("MEMORY USAGE"), ours.usage[1], theirs.usage[1] * more);
                // This includes some kilobytes of server buffers.
                output.at_most(claim("used_memory"), ours.used[1], theirs.used[1] + 0.5);
            }
        }
    }
}

/// The state of this limiter's keys.
async fn ours(
    gauge: &mut Gauge,
    state: &'static str,
    limiter: &Limiter,
    users: u64,
) -> anyhow::Result<Bytes> {
    // Loads the script before the memory is measured.
    gauge.clear().await?;
    load(limiter, FIRST..FIRST + 1).await?;
    let names = gauge.names().await?;
    let name = |name: &String, user: u64| name.replace(&FIRST.to_string(), &user.to_string());
    gauge.clear().await?;
    let before = gauge.settled().await?;
    let (mut usage, mut used) = ([0.0; 2], [0.0; 2]);
    for request in 0..2 {
        load(limiter, FIRST..FIRST + users).await?;
        used[request] = growth(before, gauge.settled().await?, users);
        let asked =
            (FIRST..FIRST + ASKED).flat_map(|user| names.iter().map(move |it| name(it, user)));
        usage[request] = gauge.usage(asked).await? as f64 / ASKED as f64;
        let keys = gauge.keys().await?;
        ensure!(
            keys == users * names.len() as u64,
            "{keys} keys of {users} users: some expired before they were measured"
        );
    }
    let name = names.join(" ").replace(&FIRST.to_string(), "USER");
    Ok(Bytes {
        state,
        name,
        usage,
        used,
    })
}

/// Sends one request of each of these users.
pub(crate) async fn load(
    limiter: &Limiter,
    users: impl IntoIterator<Item = u64>,
) -> anyhow::Result<()> {
    let calls = stream::iter(users).map(|user| limiter.acquire(format!("user:{user}")));
    calls
        .buffer_unordered(CALLS)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    Ok(())
}

/// The memory of this scheme's state under these names.
async fn theirs(
    gauge: &mut Gauge,
    scheme: &Scheme,
    name: String,
    users: u64,
) -> anyhow::Result<Bytes> {
    let of = |user: u64| name.replace("USER", &user.to_string());
    gauge.clear().await?;
    let before = gauge.settled().await?;
    let (mut usage, mut used) = ([0.0; 2], [0.0; 2]);
    for request in 0..2 {
        let commands = (FIRST..FIRST + users).flat_map(|user| -> [Cmd; 2] {
            [
                (scheme.record)(&of(user), request as u64),
                expire(&of(user)),
            ]
        });
        gauge.send(commands).await?;
        used[request] = growth(before, gauge.settled().await?, users);
        let asked = gauge.usage((FIRST..FIRST + ASKED).map(of)).await?;
        usage[request] = asked as f64 / ASKED as f64;
    }
    Ok(Bytes {
        state: scheme.name,
        name,
        usage,
        used,
    })
}
