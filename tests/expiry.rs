//! How long Redis keeps a key: as long as it has influence, and a bounded time longer.

use std::time::{Duration, Instant};

use futures_util::future::join;
use support::redis_server::RedisServer;
use support::spend::{build, under};
use tower_throttle::Limiter;

/// Windows so long that a test ends within one of them.
const LONG: [&[&str]; 8] = [
    &["5/10m"],
    &["5/10m sliding-buckets buckets=20"],
    &["5/10m gcra burst=5"],
    &["5/10m fixed-window"],
    &["5/10m fixed-window start=first-request"],
    &["5/10m spacing"],
    &["5/10m leaky-bucket capacity=50"],
    &[
        "5/10m",
        "9/20m sliding-buckets buckets=20",
        "50/d",
        "1/m spacing",
    ],
];

/// So long, a key remembers its last command.
const REMEMBERED: Duration = Duration::from_secs(60);

async fn limiter(server: &RedisServer, scripts: bool, quotas: &[&str]) -> Limiter {
    let store = server.store().await.scripting(scripts);
    build(under(quotas).store(store.expect("a store that connected")))
}

/// As long as the state or the pause counts, whichever lasts longer.
#[tokio::test]
async fn keys_live_as_long_as_they_matter() {
    join(lifetimes(true), lifetimes(false)).await;
}

async fn lifetimes(scripts: bool) {
    let server = RedisServer::start();
    let start = Instant::now();
    for quotas in LONG {
        let limiter = limiter(&server, scripts, quotas).await;
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
            let left: i64 = server.command(&["PTTL", "throttle:{a}"]);
            let left = u64::try_from(left).unwrap_or_else(|_| panic!("{quotas:?}: no expiry"));
            let left = Duration::from_millis(left) + start.elapsed();
            let most = matters.max(REMEMBERED).mul_f64(1.25);
            let most = most + Duration::from_secs(15) + start.elapsed();
            assert!(left >= matters, "{quotas:?}: {left:?} for {matters:?}");
            assert!(left <= most, "{quotas:?}: {left:?} for {matters:?}");
        }
        limiter.reset("a").await.expect("a fresh start");
    }
}
