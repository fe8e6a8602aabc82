//! Quotas that change all the time.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::store::{MemoryStore, Store};
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Quota};

use crate::labelled::Labelled;
use crate::support::redis_server::RedisServer;
use crate::{GUARD, PATIENCE, build, redis_store, set, settle};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quotas_that_change_all_the_time_lose_nobody_and_never_let_too_many_go() {
    change_all_the_time(MemoryStore::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quotas_that_change_all_the_time_on_redis_lose_nobody_and_never_let_too_many_go() {
    let server = RedisServer::start();
    change_all_the_time(redis_store(&server).await).await;
}

/// Many acquire, some of them leave, and the quotas change meanwhile.
async fn change_all_the_time(store: impl Store) {
    const KEYS: [&str; 2] = ["a", "b"];
    let quota = |limit, millis| Quota::new(limit, Duration::from_millis(millis));
    let quotas = [quota(5, 100), quota(20, 150), quota(40, 250)];
    let builder = Limiter::builder().quota(quotas[0]).guard(GUARD * 5);
    let limiter = build(builder.store(Labelled(store)));
    let start = Instant::now();

    let setter = tokio::spawn({
        let limiter = limiter.clone();
        async move {
            for turn in 0.. {
                set(&limiter, quotas[turn % quotas.len()]);
                if turn % 7 == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
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
                    let patience = Duration::from_millis(departed.len() as u64);
                    let _ = timeout(patience, limiter.acquire(key)).await;
                }
                let permit = limiter.acquire(key).await.expect("a permit");
                let at = start.elapsed();
                // A busy machine may come too late, and does not depart then.
                if permit.is_valid() {
                    departed.push((key, permit.reset(), at));
                } else {
                    permit.forfeit();
                }
            }
            departed
        })
    });
    let callers = join_all(callers.collect::<Vec<_>>());
    let departed = timeout(PATIENCE, callers).await.expect("nobody is lost");
    setter.abort();
    assert!(setter.await.expect_err("has no end").is_cancelled());
    settle(&limiter).await;

    let mut histories = HashMap::<_, History>::new();
    for departed in departed {
        for (key, label, at) in departed.expect("no panic") {
            histories.entry((key, label)).or_default().push(at);
        }
    }
    assert_eq!(histories.len(), KEYS.len() * quotas.len());
    for ((_, label), history) in histories {
        let quota = quotas.iter().find(|quota| quota.window() == label);
        let limit = quota.expect("its quota").limit();
        history.assert_at_most(limit.into(), label);
    }
}
