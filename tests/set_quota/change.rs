//! Quotas that change under load.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::store::Store;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Quota};

use crate::set_quota::{GUARD, PATIENCE, build, redis_store, set, settle};
use support::redis_server::RedisServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quotas_that_change_all_the_time_on_redis_keep_the_bound_and_lose_no_request() {
    let server = RedisServer::start();
    change_all_the_time(redis_store(&server).await).await;
}

/// Requests arrive, some are cancelled, and the quotas change all the time.
async fn change_all_the_time(store: impl Store) {
    const KEYS: [&str; 2] = ["a", "b"];
    const WINDOW: Duration = Duration::from_millis(200);
    // The shape of the state differs above 50 entries.
    let quotas = [5, 20, 80].map(|limit| Quota::new(limit, WINDOW));
    let limiter = build(
        Limiter::builder()
            .quota(quotas[0])
            .guard(GUARD * 5)
            .store(store),
    );
    let start = Instant::now();

    let setter = tokio::spawn({
        let limiter = limiter.clone();
        async move {
            for turn in 0.. {
                set(&limiter, quotas[turn % quotas.len()]);
                sleep(Duration::from_millis(turn as u64 % 7)).await;
            }
        }
    });
    let callers = (0..16).map(|number: usize| {
        let limiter = limiter.clone();
        let key = KEYS[number % KEYS.len()];
        tokio::spawn(async move {
            let mut departed = Vec::new();
            while departed.len() < 40 {
                if number < 4 {
                    let bound = Duration::from_millis(departed.len() as u64);
                    if let Ok(Ok(permit)) = timeout(bound, limiter.acquire(key)).await {
                        permit.forfeit();
                    }
                }
                let permit = limiter.acquire(key).await.expect("a permit");
                let at = start.elapsed();
                // On a busy machine it may be too late to depart.
                if permit.is_valid() {
                    departed.push((key, at));
                } else {
                    permit.forfeit();
                }
            }
            departed
        })
    });
    let callers = join_all(callers.collect::<Vec<_>>());
    let departed = timeout(PATIENCE, callers)
        .await
        .expect("no request is lost");
    setter.abort();
    assert!(setter.await.expect_err("has no end").is_cancelled());
    settle(&limiter).await;

    let departed = departed.into_iter().map(|it| it.expect("no panic"));
    let departed: Vec<_> = departed.flatten().collect();
    for key in KEYS {
        let of_key = departed.iter().filter(|it| it.0 == key);
        let history: History = of_key.map(|it| it.1).collect();
        assert_eq!(history.len(), 8 * 40);
        history.assert_at_most(80, WINDOW);
    }
}

/// As a rollout does it: 100 per window become 60, one replica after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_replicas_lower_one_after_the_other_holds_under_load() {
    const WINDOW: Duration = Duration::from_secs(1);
    let server = RedisServer::start();
    let mut replicas = Vec::new();
    for _ in 0..3 {
        let builder = Limiter::builder().quota(Quota::new(100, WINDOW));
        let store = redis_store(&server).await;
        replicas.push(build(builder.guard(GUARD * 5).store(store)));
    }
    let start = Instant::now();
    let departed = Arc::new(Mutex::new(Vec::new()));
    let mut callers = JoinSet::new();
    for replica in replicas.iter().cycle().take(3 * 60) {
        let (replica, departed) = (replica.clone(), departed.clone());
        callers.spawn(async move {
            loop {
                let permit = replica.acquire("a").await.expect("a permit");
                let at = start.elapsed();
                if permit.is_valid() {
                    departed.lock().expect("no panic").push(at);
                } else {
                    permit.forfeit();
                }
            }
        });
    }
    sleep(2 * WINDOW).await;
    for replica in &replicas {
        set(replica, Quota::new(60, WINDOW));
        sleep(WINDOW * 2 / 5).await;
    }
    // Departures that were granted under the old quota are over by now.
    let changed = start.elapsed();
    sleep(4 * WINDOW).await;
    callers.shutdown().await;

    let departed = departed.lock().expect("no panic");
    let all: History = departed.iter().copied().collect();
    all.assert_at_most(100, WINDOW);
    assert!(all.most_in_any(WINDOW) > 60, "the old quota was in use");
    let after: History = departed
        .iter()
        .copied()
        .filter(|&at| at >= changed)
        .collect();
    after.assert_at_most(60, WINDOW);
    assert!(after.len() >= 120, "{} departures", after.len());
}
