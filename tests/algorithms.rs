//! The algorithms on a real Redis: replicas together keep the bound of each.
//!
//! Redis runs on this host, so the system's clock is the store's.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::join;
use support::keyspace::{assert_all_expire, names};

use crate::prelude::*;

/// Longer than a test waits on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

const MS: fn(u64) -> Duration = Duration::from_millis;

async fn limiter(server: &RedisServer, quota: &str, scripting: bool) -> Limiter {
    let store = server.store().await;
    let store = store.prefix("fleet").expect("a prefix").timeout(PATIENCE);
    let store = store.scripting(scripting).expect("its own connections");
    let quotas: Vec<_> = quota.split(" + ").collect();
    build(under(&quotas).guard(MS(5)).store(store))
}

/// Departs once. Returns a time at which the permit was valid.
async fn depart(limiter: &Limiter) -> Duration {
    loop {
        let permit = limiter.acquire("a").await.expect("a permit");
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        if permit.is_valid() {
            return now.expect("a clock after 1970");
        }
        permit.forfeit();
    }
}

/// Windows begin with a departure, and each next one with the first departure after its end.
fn most_in_successive(departed: &[Duration], window: Duration) -> u64 {
    let mut most = 0;
    let mut rest = departed;
    while let Some(&start) = rest.first() {
        let length = rest.partition_point(|&at| at < start + window);
        most = most.max(length);
        rest = &rest[length..];
    }
    most as u64
}

#[tokio::test]
async fn replicas_keep_the_bound_of_each_algorithm_and_all_keys_expire() {
    type Bound = fn(&[Duration], History) -> bool;
    let cases: [(&str, Bound); 8] = [
        ("10/200ms", |_, it| it.most_in_any(MS(200)) <= 10),
        ("5/200ms + 12/600ms", |_, it| {
            it.most_in_any(MS(200)) <= 5 && it.most_in_any(MS(600)) <= 12
        }),
        ("50/s spacing", |_, it| it.most_in_any(MS(20)) <= 1),
        ("50/s leaky-bucket capacity=1000", |_, it| {
            it.most_in_any(MS(20)) <= 1
        }),
        ("60/s gcra burst=5", |_, it| {
            it.burst(MS(1_000).div_f64(60.0)) <= 5
        }),
        ("10/200ms sliding-buckets buckets=10", |_, it| {
            it.most_in_any(MS(200)) <= 10
        }),
        ("10/200ms fixed-window", |_, it| {
            it.most_in_aligned(MS(200)) <= 10
        }),
        (
            "10/200ms fixed-window start=first-request",
            |departed, _| most_in_successive(departed, MS(200)) <= 10,
        ),
    ];
    join_all(cases.map(async |(quota, keeps)| {
        let server = RedisServer::start();
        // One replica uses scripts, the other transactions.
        let replicas = [
            limiter(&server, quota, true).await,
            limiter(&server, quota, false).await,
        ];
        let departs = (0..30).flat_map(|_| replicas.each_ref().map(depart));
        let mut departed = join_all(departs).await;
        departed.sort_unstable();
        assert!(names(&server).iter().all(|name| name == "fleet:{a}"));
        assert_all_expire(&server);
        let history = departed.iter().copied().collect();
        assert!(keeps(&departed, history), "{quota}: {departed:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_full_leaky_bucket_refuses_in_all_replicas() {
    let server = RedisServer::start();
    let quota = "4/10m leaky-bucket capacity=5";
    let here = limiter(&server, quota, true).await;
    let there = limiter(&server, quota, false).await;
    depart(&here).await;
    let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(here.acquire("a"))).collect();
    for waiter in &mut waiting {
        assert!(poll!(waiter).is_pending());
    }
    for limiter in [&here, &there] {
        let error = limiter.acquire("a").await.expect_err("it is full");
        assert!(
            error.is_limited() && error.wait() > Some(MS(5 * 150_000)),
            "{error}"
        );
    }
}

/// Windows so long that a test ends within one of them.
const LONG: [&str; 8] = [
    "5/10m",
    "5/10m sliding-buckets buckets=20",
    "5/10m gcra burst=5",
    "5/10m fixed-window",
    "5/10m fixed-window start=first-request",
    "5/10m spacing",
    "5/10m leaky-bucket capacity=50",
    "5/10m + 9/20m sliding-buckets buckets=20 + 50/d + 1/m spacing",
];

/// So long, a key remembers its last command.
const REMEMBERED: Duration = Duration::from_secs(60);

/// As long as the state or the pause counts, whichever lasts longer.
#[tokio::test]
async fn keys_live_as_long_as_they_matter() {
    join(lifetimes(true), lifetimes(false)).await;
}

async fn lifetimes(scripts: bool) {
    let server = RedisServer::start();
    let start = Instant::now();
    for quotas in LONG {
        let limiter = limiter(&server, quotas, scripts).await;
        for (count, pause) in [(1, None), (3, None), (1, Some(60)), (0, Some(100_000))] {
            for _ in 0..count {
                limiter.try_acquire("a").await.expect("a decision");
            }
            if let Some(pause) = pause {
                let until = tokio::time::Instant::now() + Duration::from_secs(pause);
                limiter.pause("a", until).await.expect("a pause");
            }
            let snapshot = limiter.peek("a").await.expect("a look");
            let matters = snapshot.reset().max(snapshot.delay());
            let left: i64 = server.command(&["PTTL", "fleet:{a}"]);
            let left = u64::try_from(left).unwrap_or_else(|_| panic!("{quotas}: no expiry"));
            let left = Duration::from_millis(left) + start.elapsed();
            let most = matters.max(REMEMBERED).mul_f64(1.25);
            let most = most + Duration::from_secs(15) + start.elapsed();
            assert!(left >= matters, "{quotas}: {left:?} for {matters:?}");
            assert!(left <= most, "{quotas}: {left:?} for {matters:?}");
        }
        limiter.reset("a").await.expect("a fresh start");
    }
}
