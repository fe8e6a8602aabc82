//! Several limiters that share quotas on a Redis, as several processes do.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, LimiterBuilder, Quota, Recovery};

use support::redis_server::RedisServer;

const SECOND: Duration = Duration::from_secs(1);

/// Limiters that share nothing but the server.
async fn limiters(
    server: &RedisServer,
    count: usize,
    set: impl Fn(LimiterBuilder) -> LimiterBuilder,
) -> Vec<Limiter> {
    let mut limiters = Vec::new();
    for _ in 0..count {
        let store = RedisStore::connect(&server.url())
            .await
            .expect("a connection");
        let limiter = set(Limiter::builder().store(store)).build();
        limiters.push(limiter.expect("a limiter"));
    }
    limiters
}

/// Sends so many requests by each limiter, and returns their departures, measured from `start`.
async fn depart(limiters: &[Limiter], requests: usize, start: Instant) -> History {
    let departs = limiters
        .iter()
        .flat_map(|limiter| std::iter::repeat_n(limiter, requests))
        .map(|limiter| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                limiter.acquire("key").await.expect("a permit");
                start.elapsed()
            })
        });
    join_all(departs)
        .await
        .into_iter()
        .map(|departed| departed.expect("no panic"))
        .collect()
}

#[tokio::test]
async fn no_window_holds_more_than_the_limit() {
    let server = RedisServer::start();
    let limiters = limiters(&server, 3, |builder| builder.quota(Quota::per_second(20))).await;
    let start = Instant::now();
    let history = depart(&limiters, 40, start).await;
    history.assert_at_most(20, SECOND);
    let span = history.span().expect("departures");
    assert!(span >= 5 * SECOND && span < 8 * SECOND, "{span:?}");
}

#[tokio::test]
async fn strict_recovery_lets_requests_depart_after_its_quarantine() {
    let server = RedisServer::start();
    let strict = |builder: LimiterBuilder| {
        builder
            .quota(Quota::per_second(10))
            .recovery(Recovery::Strict)
    };
    let limiters = limiters(&server, 2, strict).await;
    let start = Instant::now();
    let history = depart(&limiters, 10, start).await;
    history.assert_at_most(10, SECOND);
    assert!(
        start.elapsed() >= 2 * SECOND,
        "the server may have lost departures of the second before"
    );
    assert!(start.elapsed() < 10 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_changed_quota_keeps_its_history() {
    let server = RedisServer::start();
    let limiters = limiters(&server, 2, |builder| {
        builder.quota(Quota::new(10, 3 * SECOND))
    })
    .await;
    let start = Instant::now();
    let before = depart(&limiters, 5, start).await;
    for limiter in &limiters {
        limiter
            .set_quotas([Quota::new(6, 3 * SECOND)])
            .expect("a quota");
    }
    let after = depart(&limiters, 6, start).await;
    after.assert_at_most(6, 3 * SECOND);
    let first = after.times().next().expect("a departure");
    assert!(
        first >= 3 * SECOND,
        "the window is full until then: {before:?}, {after:?}"
    );
}

#[tokio::test]
async fn a_forfeited_permit_is_available_to_all() {
    let server = RedisServer::start();
    let limiters = limiters(&server, 2, |builder| {
        builder.quota(Quota::new(1, 600 * SECOND))
    })
    .await;
    let [one, other] = &limiters[..] else {
        unreachable!()
    };
    let permit = one.acquire("key").await.expect("a permit");
    let decision = other.try_acquire("key").await.expect("a decision");
    assert!(!decision.is_granted());
    permit.forfeit();
    // A request that came before the store has the permit would wait for a quarter of the window.
    let is_back = async {
        while other.peek("key").await.expect("a look").remaining() == 0 {
            sleep(SECOND / 100).await;
        }
    };
    timeout(30 * SECOND, is_back).await.expect("in time");
    timeout(30 * SECOND, other.acquire("key"))
        .await
        .expect("in time")
        .expect("a permit");
}
