//! Reloads under load: no request is lost, and no window holds more than the quota.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::rules::{Rule, Rules};
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Outage, Quota, Recovery};

use super::settle;
use crate::rules::{PATIENCE, rules};
use support::redis_server::RedisServer;

const WINDOW: Duration = Duration::from_millis(200);
const LIMIT: u32 = 20;

fn rule(name: &str) -> Rule {
    Rule::named(name).quota(Quota::new(LIMIT, WINDOW))
}

/// Each table has the same quota; everything else differs.
fn tables(recoveries: [Recovery; 2]) -> [Rules; 4] {
    let [one, other] = recoveries;
    let more = |number: u32| rule("more").path(format!("/{number}"));
    [
        rules([rule("all").recovery(one)]),
        rules([more(1), rule("all").max_wait(PATIENCE).recovery(other)]),
        rules([
            more(2),
            rule("all")
                .guard(Duration::from_millis(20))
                .outage(Outage::Allow)
                .recovery(one),
        ]),
        rules([rule("all")
            .max_waiting(10_000)
            .buffer(Duration::from_millis(5))
            .recovery(other)]),
    ]
}

pub(crate) async fn on(redis: &RedisServer, rules: &Rules) -> Limiter {
    let store = RedisStore::connect(&redis.url())
        .await
        .expect("a connection");
    // A busy machine answers late; what happens then is another test's matter.
    let store = store.timeout(PATIENCE);
    let builder = Limiter::builder().store(store).rules(rules.clone());
    builder.build().expect("a limiter")
}

/// When a request departs, by its own permit.
async fn depart(limiter: &Limiter, key: &str, start: Instant) -> Duration {
    loop {
        let permit = limiter.acquire(key).await.expect("a permit");
        let at = start.elapsed();
        if permit.is_valid() {
            return at;
        }
        permit.forfeit();
    }
}

/// So many requests for each of two keys, in two limiters as in two processes, while both are reloaded all the time.
async fn under_load(tables: [Rules; 4], requests: usize) {
    let redis = RedisServer::start();
    let limiters = [on(&redis, &tables[0]).await, on(&redis, &tables[0]).await];
    let start = Instant::now();
    let is_over = Arc::new(AtomicBool::new(false));
    let reloading = (0..4).map(|turn| {
        let (limiter, tables, is_over) =
            (limiters[turn % 2].clone(), tables.clone(), is_over.clone());
        tokio::spawn(async move {
            let mut turns = turn;
            while !is_over.load(Ordering::Relaxed) {
                limiter
                    .reload(tables[turns % 4].clone())
                    .expect("a limiter with rules");
                turns += 1;
                sleep(Duration::from_millis(7)).await;
            }
            turns - turn
        })
    });
    let reloading: Vec<_> = reloading.collect();
    for key in ["a", "b"] {
        let departing = (0..requests).map(|number| {
            let limiter = limiters[number % 2].clone();
            tokio::spawn(async move {
                // Not all at the same time.
                sleep(Duration::from_millis(number as u64)).await;
                depart(&limiter, key, start).await
            })
        });
        let all = timeout(PATIENCE * 2, join_all(departing)).await;
        let all = all.expect("nobody is lost").into_iter();
        let history: History = all.map(|it| it.expect("no panic")).collect();
        assert_eq!(history.len(), requests);
        history.assert_at_most(LIMIT.into(), WINDOW);
    }
    is_over.store(true, Ordering::Relaxed);
    for turns in join_all(reloading).await {
        assert!(turns.expect("no panic") > 10, "that is no load");
    }
    for limiter in &limiters {
        settle(limiter).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_the_quota_departs_while_all_else_is_reloaded() {
    under_load(tables([Recovery::Immediate; 2]), 300).await;
}
