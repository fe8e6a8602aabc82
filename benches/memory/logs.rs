//! Long logs: bytes per logged request.

use std::time::Duration;

use futures_util::future::try_join_all;
use tower_throttle::key::Key;
use tower_throttle::store::{Ask, Outcome, RedisStore, Reserve, Store as _};
use tower_throttle::{Policy, Quota};

use crate::gauge::{Gauge, growth};
use crate::schemes::{LOG_SCHEMES, LogScheme};
use crate::support::{Cell, Output, Progress, Table, policy};

/// The limit, and for how many keys.
const LIMITS: [(u32, u64); 2] = [(1_000, 80), (10_000, 8)];
const MOST_BYTES: f64 = 10.0;

/// What a log went through before it is measured.
#[derive(Clone, Copy)]
enum Past {
    /// It was filled, by many calls.
    Full,
    /// For some windows, it took what there was room for.
    Steady,
    /// After that, it took half as many again as the limit is.
    Waiting,
}

const PASTS: [(&str, Past); 3] = [
    ("sliding log, full", Past::Full),
    ("sliding log, after 4 windows", Past::Steady),
    ("sliding log, and half as many waiting", Past::Waiting),
];

/// Bytes per logged request.
struct Bytes {
    logged: u64,
    usage: f64,
    used: f64,
}

/// One long log, and what it was asked to record.
struct Log<'a> {
    store: &'a RedisStore,
    policy: &'a Policy,
    key: Key,
    records: Vec<u64>,
    now: u64,
}

pub(crate) async fn measure(
    gauge: &mut Gauge,
    store: &RedisStore,
    output: &mut Output,
) -> anyhow::Result<()> {
    let mut table = Table::new(
        "bytes per logged request",
        &[
            "log",
            "limit",
            "logged per key",
            "by MEMORY USAGE",
            "by used_memory",
        ],
    );
    // Once, for the buffers that the server keeps from then on: a byte per request here.
    let limits = LIMITS.map(|(limit, keys)| (limit, output.options().count(keys)));
    let (limit, keys) = limits[0];
    ours(gauge, store, Past::Full, limit, keys).await?;
    let mut progress = Progress::new(limits.len() * (PASTS.len() + LOG_SCHEMES.len()));
    for (limit, keys) in limits {
        for (name, past) in PASTS {
            progress.begin(&format!("logs of {limit}, {name}"));
            let bytes = ours(gauge, store, past, limit, keys).await?;
            table.row(row(name, limit, keys, &bytes));
            let claim = |by| format!("{name}, bytes per request of {limit} by {by}");
            output.at_most(claim("MEMORY USAGE"), bytes.usage, MOST_BYTES);
            output.at_most(claim("used_memory"), bytes.used, MOST_BYTES);
        }
        for scheme in &LOG_SCHEMES {
            progress.begin(&format!("logs of {limit}, {}", scheme.name));
            let bytes = theirs(gauge, scheme, limit, keys).await?;
            table.row(row(scheme.name, limit, keys, &bytes));
        }
    }
    output.table(&table);
    Ok(())
}

fn row(name: &str, limit: u32, keys: u64, bytes: &Bytes) -> [Cell; 5] {
    [
        Cell::text(name),
        Cell::Count(limit.into()),
        Cell::Count(bytes.logged / keys),
        Cell::Figure(bytes.usage),
        Cell::Figure(bytes.used),
    ]
}

async fn ours(
    gauge: &mut Gauge,
    store: &RedisStore,
    past: Past,
    limit: u32,
    keys: u64,
) -> anyhow::Result<Bytes> {
    let window = match past {
        Past::Full => Duration::from_secs(3_600),
        Past::Steady | Past::Waiting => Duration::from_millis(800),
    };
    let policy = policy(Quota::new(limit, window), None)?;
    gauge.clear().await?;
    let mut logs = (0..keys)
        .map(|key| Log::new(store, &policy, key))
        .collect::<Vec<_>>();
    // The server knows the script before its memory is looked at.
    Log::new(store, &policy, keys).reserve(1, u64::MAX).await?;
    gauge.clear().await?;
    let before = gauge.settled().await?;
    try_join_all(logs.iter_mut().map(|log| log.live(past, limit, window))).await?;
    let after = gauge.used().await?;
    let names = gauge.names().await?;
    let usage = gauge.usage(names).await?;
    let logged = logs.iter().map(|log| log.logged(window)).sum();
    Ok(Bytes {
        logged,
        usage: usage as f64 / logged as f64,
        used: growth(before, after, logged),
    })
}

impl<'a> Log<'a> {
    fn new(store: &'a RedisStore, policy: &'a Policy, number: u64) -> Self {
        Self {
            store,
            policy,
            key: Key::new(format!("api:{number}")),
            records: Vec::new(),
            now: 0,
        }
    }

    async fn live(&mut self, past: Past, limit: u32, window: Duration) -> anyhow::Result<()> {
        if matches!(past, Past::Full) {
            for _ in 0..1_000 {
                self.reserve(limit / 1_000, u64::MAX).await?;
            }
            return Ok(());
        }
        for _ in 0..40 {
            self.reserve(limit / 10, 0).await?;
            tokio::time::sleep(window / 10).await;
        }
        // What a burst left behind may be less than full.
        let room = self.reserve(1, 0).await?;
        self.reserve(room, 0).await?;
        if matches!(past, Past::Waiting) {
            self.reserve(limit / 2, u64::MAX).await?;
        }
        Ok(())
    }

    /// Returns how many more may depart now.
    async fn reserve(&mut self, count: u32, max_wait: u64) -> anyhow::Result<u32> {
        let asks = [Ask {
            count,
            cost: 1,
            max_wait,
        }];
        let mut reserve = Reserve::new(&self.key, self.policy);
        reserve.asks = &asks;
        let reserved = self.store.reserve(&reserve).await?;
        self.now = reserved.now();
        for outcome in reserved.outcomes() {
            if let Outcome::Granted(slot) = outcome {
                self.records.push(slot.record);
            }
        }
        Ok(reserved.remaining())
    }

    /// How many requests still counted at the last call.
    fn logged(&self, window: Duration) -> u64 {
        let count = |record: &&u64| {
            Duration::from_micros(**record) + window > Duration::from_micros(self.now)
        };
        self.records.iter().filter(count).count() as u64
    }
}

async fn theirs(
    gauge: &mut Gauge,
    scheme: &LogScheme,
    limit: u32,
    keys: u64,
) -> anyhow::Result<Bytes> {
    const PART: u64 = 100;
    gauge.clear().await?;
    let before = gauge.settled().await?;
    let names: Vec<_> = (0..keys).map(|key| format!("throttle:api:{key}")).collect();
    for name in &names {
        let parts = (0..u64::from(limit) / PART).map(|part| part * PART..(part + 1) * PART);
        gauge
            .send(parts.map(|part| (scheme.record)(name, part)))
            .await?;
    }
    let logged = u64::from(limit) * keys;
    Ok(Bytes {
        logged,
        used: growth(before, gauge.settled().await?, logged),
        usage: gauge.usage(names).await? as f64 / logged as f64,
    })
}
