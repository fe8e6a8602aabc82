//! Quotas that change under load.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::store::{MemoryStore, RedisStore, Store};
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Permit, Quota};

use crate::set_quota::{GUARD, PATIENCE, build, redis_store, set, settle};
use support::proxy::Proxy;
use support::redis_server::RedisServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quotas_that_change_all_the_time_keep_the_bound_and_lose_no_request() {
    change_all_the_time(MemoryStore::new()).await;
}

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

/// How many requests depart until one has to wait.
async fn departures_at_once(limiter: &Limiter) -> u32 {
    let mut count = 0;
    while limiter
        .try_acquire("a")
        .await
        .expect("an answer")
        .is_granted()
    {
        count += 1;
    }
    count
}

/// The present counters have not recorded the departures that are given back.
#[tokio::test]
async fn permits_of_another_algorithm_are_not_returned_to_the_new_counter() {
    for quota in ["10/h fixed-window start=first-request", "1/h gcra burst=10"] {
        let limiter = build(Limiter::builder().quota(Quota::per_second(10)));
        let mut permits = Vec::new();
        for _ in 0..10 {
            permits.push(limiter.acquire("a").await.expect("a permit"));
        }
        set(&limiter, quota.parse().expect("a quota"));
        let mut departed = departures_at_once(&limiter).await;
        permits.into_iter().for_each(Permit::forfeit);
        settle(&limiter).await;
        departed += departures_at_once(&limiter).await;
        // A bucket holds one less, until the guard of the first ones has passed.
        assert!((9..=10).contains(&departed), "{departed} under {quota}");
    }
}

/// Requests of a process with another quota, which is far from the server, while others depart all the time.
async fn depart_far_away(near: &str, far: &str, lasts: Duration) {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    proxy.delay(Duration::from_millis(20));
    let quota = |text: &str| Limiter::builder().quota(text.parse().expect("a quota"));
    let store = RedisStore::connect(&proxy.url())
        .await
        .expect("a connection");
    let far = build(quota(far).store(store));
    let mut traffic = JoinSet::new();
    for _ in 0..5 {
        let near = build(quota(near).store(redis_store(&server).await));
        traffic.spawn(async move {
            let end = Instant::now() + lasts;
            while Instant::now() < end {
                near.acquire("a").await.expect("a permit");
                sleep(Duration::from_millis(15)).await;
            }
        });
    }
    sleep(Duration::from_millis(300)).await;
    let requests = join_all((0..50).map(|_| far.acquire("a")));
    let permits = timeout(PATIENCE, requests)
        .await
        .expect("none waits forever");
    for permit in permits {
        permit.expect("a permit");
    }
    assert!(!far.health().is_out());
    traffic.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_other_shapes_do_not_keep_a_process_from_departing() {
    depart_far_away("60/100ms", "50/100ms", 10 * PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_of_another_algorithm_fails_no_request() {
    depart_far_away("2_000/s", "2_000/s gcra burst=100", Duration::from_secs(3)).await;
}
