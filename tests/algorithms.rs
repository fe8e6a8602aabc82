//! The algorithms on a real Redis. The contract of stores covers their bounds.

use std::time::Instant;

use futures_util::future::join;

use crate::prelude::*;

async fn limiter(server: &RedisServer, quota: &str, scripting: bool) -> Limiter {
    let store = server.store().await;
    let store = store.prefix("fleet").expect("a prefix");
    let store = store.scripting(scripting).expect("its own connections");
    let quotas: Vec<_> = quota.split(" + ").collect();
    // On a busy machine, requests would miss shorter turns again and again.
    build(under(&quotas).guard(SECOND).store(store))
}

#[tokio::test]
async fn a_full_leaky_bucket_refuses_in_all_replicas() {
    let server = RedisServer::start();
    let quota = "4/10m leaky-bucket capacity=5";
    let here = limiter(&server, quota, true).await;
    let there = limiter(&server, quota, false).await;
    spend_by(&here, "a", 1).await;
    let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(here.acquire("a"))).collect();
    for waiter in &mut waiting {
        assert!(poll!(waiter).is_pending());
    }
    let wait = SECOND * 750;
    eventually("the other replica knows of all", async || {
        there.peek("a").await.expect("a look").delay() > wait
    })
    .await;
    // The arrivals of two processes are compared up to the uncertainty of their clocks.
    tokio::time::sleep(MS * 250).await;
    for limiter in [&here, &there] {
        let error = limiter.acquire("a").await.expect_err("it is full");
        assert!(error.is_limited() && error.wait() > Some(wait));
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
        spend_by(&limiter, "a", 1).await;
        for (count, pause) in [(0, None), (3, None), (1, Some(60)), (0, Some(100_000))] {
            for _ in 0..count {
                let _ = until_ok(async || limiter.try_acquire("a").await).await;
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
        server.command::<()>(&["DEL", "fleet:{a}"]);
    }
}
