//! Requests that wait keep their places in a reload, and depart under the new policy of their rule.

use futures_util::future::join_all;
use tokio::time::{Instant, advance};
use tower_throttle::rules::Rule;
use tower_throttle::test_util::history::History;
use tower_throttle::{ErrorKind, Outage, Quota};

use super::{GUARD, SECOND, STEP, per_second, reload, settle, waiter};
use crate::rules::{limiter, per_hour};

#[tokio::test(start_paused = true)]
async fn other_bounds_are_for_new_requests_in_the_same_queue() {
    let limiter = limiter([per_second(1)]);
    limiter.acquire("a").await.expect("a permit");
    let mut waiters = Vec::new();
    for _ in 0..3 {
        waiters.push(waiter(&limiter).await);
    }
    let bounds = per_second(1).max_waiting(4).max_wait(SECOND * 9 / 2);
    reload(&limiter, [bounds]);
    waiters.push(waiter(&limiter).await);
    let full = limiter.acquire("a").await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::QueueFull, "{full}");
    reload(&limiter, [per_second(1).max_wait(SECOND)]);
    let error = limiter.acquire("a").await.unwrap_err();
    assert!(
        error.is_limited() && error.wait() > Some(STEP * 4),
        "{error}"
    );
    assert_eq!(limiter.queues(), 1);
    for (place, permit) in (1..).zip(join_all(waiters).await) {
        let (waited, due) = (permit.expect("a permit").waited(), STEP * place);
        assert!((due..due + GUARD).contains(&waited), "{waited:?}");
    }
    settle(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn reloads_of_bounds_keep_the_order_and_the_quota() {
    let limiter = limiter([per_second(5)]);
    let start = Instant::now();
    let mut all = Vec::new();
    for turn in 0..20_u32 {
        for _ in 0..5 {
            let acquire = limiter.acquire("a");
            all.push(tokio::spawn(async move {
                acquire.await.expect("a permit");
                start.elapsed()
            }));
        }
        advance(SECOND / 10).await;
        let guard = GUARD + GUARD * (turn % 3);
        let outage = if turn % 2 == 0 {
            Outage::Deny
        } else {
            Outage::Allow
        };
        reload(
            &limiter,
            [per_second(5).guard(guard).max_waiting(1_000).outage(outage)],
        );
    }
    let departures = join_all(all).await;
    let departures: Vec<_> = departures
        .into_iter()
        .map(|it| it.expect("no panic"))
        .collect();
    assert!(departures.is_sorted(), "{departures:?}");
    let history: History = departures.into_iter().collect();
    assert_eq!(history.len(), 100);
    history.assert_at_most(5, SECOND);
    settle(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn another_buffer_holds_in_a_queue_that_never_empties() {
    let limiter = limiter([per_second(1)]);
    limiter.acquire("a").await.expect("a permit");
    let first = waiter(&limiter).await;
    tokio::time::sleep(SECOND / 2).await;
    reload(&limiter, [per_second(1).buffer(SECOND)]);
    let (second, third) = (waiter(&limiter).await, waiter(&limiter).await);
    let permits = join_all([first, second, third]).await;
    let waited = permits.into_iter().map(|it| it.expect("a permit").waited());
    let waited: Vec<_> = waited.collect();
    assert!(waited[0] >= STEP && waited[0] < STEP + GUARD, "{waited:?}");
    let apart = waited[2] - waited[1];
    assert!(apart >= SECOND + STEP, "{apart:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_by_a_rule_that_is_removed_departs_by_it() {
    let limiter = limiter([per_second(1)]);
    limiter.acquire("a").await.expect("a permit");
    let (old, paused) = (waiter(&limiter).await, waiter(&limiter).await);
    reload(&limiter, [Rule::exempt()]);
    assert_eq!(limiter.queues(), 1);
    limiter
        .acquire("a")
        .await
        .expect("a permit, as all others pass");
    let waited = old.await.expect("a permit").waited();
    assert!(waited >= STEP && waited < STEP + GUARD, "{waited:?}");
    // The rule comes back, also for requests that still wait by it.
    reload(&limiter, [per_second(1).max_wait(SECOND * 100)]);
    let until = Instant::now() + SECOND * 30;
    limiter.pause("a", until).await.expect("a store");
    let waited = paused.await.expect("a permit").waited();
    assert!(
        waited >= SECOND * 30,
        "the pause holds for them: {waited:?}"
    );
    settle(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_comes_back_finds_its_state() {
    let limiter = limiter([per_hour("search", 2).path("/search"), Rule::exempt()]);
    let search = limiter.rule("search").expect("a rule");
    search.acquire("a").await.expect("a permit");
    search.acquire("a").await.expect("a permit");
    reload(&limiter, [Rule::exempt()]);
    assert!(limiter.rule("search").is_none());
    reload(&limiter, [per_hour("search", 2), Rule::exempt()]);
    let again = limiter.rule("search").expect("a rule");
    assert_eq!(again.peek("a").await.expect("a snapshot").remaining(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_of_one_rule_follows_it() {
    let limiter = limiter([per_hour("search", 2).path("/search"), Rule::exempt()]);
    let search = limiter.rule("search").expect("a rule");
    let follows = |rule: Option<Rule>, limit| {
        reload(&limiter, rule.into_iter().chain([Rule::exempt()]));
        assert_eq!(search.policy().quotas(), [Quota::per_hour(limit)]);
    };
    follows(Some(per_hour("search", 5)), 5);
    // The last policy stays while there is no such rule.
    follows(None, 5);
    follows(Some(per_hour("search", 7).path("/s")), 7);
    drop(limiter);
    search.acquire("a").await.expect("a permit");
}
