//! Rules that change while requests wait. All rules of a limiter share the store, its availability and its clock.

use futures_util::future::join;
use tower_throttle::test_util::ManualClock;

use crate::limiter::{GUARD, STEP, waiter};
use crate::prelude::*;
use crate::rules::{limiter, per_hour, rules};

fn per_second(limit: u32) -> Rule {
    let rule = Rule::named("all").quota(Quota::per_second(limit));
    rule.guard(GUARD)
}

fn on(store: &FailingStore, all: impl IntoIterator<Item = Rule>) -> Limiter {
    build(Limiter::builder().store(store.clone()).rules(rules(all)))
}

fn reload(limiter: &Limiter, all: impl IntoIterator<Item = Rule>) {
    limiter.reload(rules(all)).expect("a limiter with rules");
}

async fn settle(limiter: &Limiter) {
    eventually("no queue is left", async || limiter.queues() == 0).await;
}

#[test]
fn without_rules_there_is_nothing_to_reload_and_with_rules_no_quotas_to_set() {
    let plain = build(under(&["1/s"]));
    assert!(plain.rules().is_none() && plain.rule("all").is_none());
    let error = plain.reload(rules([per_second(1)])).unwrap_err();
    let problem = "rules: this limiter has one policy: see `set_quotas`";
    assert_eq!(error.to_string(), problem);
    let ruled = limiter([per_second(1)]);
    for limiter in [&ruled, &ruled.rule("all").expect("a rule")] {
        let error = limiter.set_quota(Quota::per_second(2)).unwrap_err();
        let problem = "quota: the `rules` of the limiter set it: change it there";
        assert_eq!(error.to_string(), problem);
    }
}

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
    assert!(error.is_limited() && error.wait() > Some(STEP * 4));
    assert_eq!(limiter.queues(), 1);
    for (place, permit) in (1..).zip(join_all(waiters).await) {
        let (waited, due) = (permit.expect("a permit").waited(), STEP * place);
        assert!((due..due + GUARD).contains(&waited), "{waited:?}");
    }
    settle(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_by_a_rule_that_is_removed_departs_by_it() {
    let limiter = limiter([per_second(1)]);
    limiter.acquire("a").await.expect("a permit");
    let (old, paused) = (waiter(&limiter).await, waiter(&limiter).await);
    reload(&limiter, [Rule::exempt()]);
    assert_eq!(limiter.queues(), 1);
    let others = limiter.acquire("a").await;
    others.expect("all others pass");
    let waited = old.await.expect("a permit").waited();
    assert!(waited >= STEP && waited < STEP + GUARD, "{waited:?}");
    // The rule comes back, also for requests that still wait by it.
    reload(&limiter, [per_second(1).path("/a"), Rule::exempt()]);
    let until = Instant::now() + SECOND * 30;
    limiter.pause("a", until).await.expect("a store");
    let waited = paused.await.expect("a permit").waited();
    assert!(waited >= SECOND * 30, "a pause holds for them: {waited:?}");
    settle(&limiter).await;
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
    follows(None, 5);
    follows(Some(per_hour("search", 7).path("/s")), 7);
    drop(limiter);
    search.acquire("a").await.expect("a permit");
}

/// How many of ten are granted at once.
async fn granted(limiter: &Limiter) -> usize {
    let rule = limiter.rule("all").expect("a rule");
    let mut granted = 0;
    for _ in 0..10 {
        let answer = rule.try_acquire("a").await;
        granted += usize::from(answer.is_ok_and(|it| it.is_granted()));
    }
    granted
}

#[tokio::test(start_paused = true)]
async fn departures_by_a_share_count_after_outages_were_denied_and_the_rule_was_gone() {
    let denied = || per_hour("all", 4);
    let store = FailingStore::new(MemoryStore::new());
    store.fail_with(Fault::Unreachable);
    let limiter = on(&store, [denied()]);
    assert_eq!(granted(&limiter).await, 0);
    for departs in [4, 0, 0] {
        reload(&limiter, [denied().outage(Outage::Local { share: 1.0 })]);
        assert_eq!(granted(&limiter).await, departs);
        reload(&limiter, [denied()]);
        assert_eq!(granted(&limiter).await, 0);
        reload(&limiter, [Rule::exempt()]);
    }
}

#[tokio::test(start_paused = true)]
async fn another_buffer_holds_in_a_queue_that_never_empties() {
    let limiter = limiter([per_second(1)]);
    limiter.acquire("a").await.expect("a permit");
    let first = waiter(&limiter).await;
    sleep(SECOND / 2).await;
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
async fn an_outage_and_its_end_are_known_to_all_rules() {
    let store = FailingStore::new(MemoryStore::new());
    let rules = [per_hour("one", 2).path("/a"), per_hour("other", 1)];
    let limiter = on(&store, rules);
    let [one, other] = ["one", "other"].map(|name| limiter.rule(name).expect("a rule"));
    one.acquire("a").await.expect("a permit");
    store.fail_with(Fault::Unreachable);
    for (rule, name) in [(&one, "one"), (&other, "other")] {
        let error = rule.acquire("a").max_wait(SECOND).await.unwrap_err();
        let is_named = error.policy_name() == Some(name);
        assert!(error.is_store() && is_named, "{error}");
    }
    assert!(limiter.health().is_out() && other.health().is_out());
    assert_eq!(store.calls(), 2, "only the first rule calls");
    let (mut first, mut second) = (Box::pin(one.acquire("a")), Box::pin(other.acquire("a")));
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    sleep(SECOND).await;
    store.recover();
    let (first, second) = bounded(join(first, second)).await;
    assert!(first.is_ok() && second.is_ok());
    assert!(!limiter.health().is_out());
}

/// The last rule has a store of its own, which is never out.
#[tokio::test(start_paused = true)]
async fn an_outage_is_known_beside_an_exemption_and_not_probed_once_no_rule_limits() {
    let store = FailingStore::new(MemoryStore::new());
    let limiter = on(&store, [per_hour("all", 1).path("/a"), Rule::exempt()]);
    let rule = limiter.rule("all").expect("a rule");
    store.fail_with(Fault::Unreachable);
    rule.try_acquire("a").await.expect_err("an outage");
    assert!(limiter.health().is_out());
    drop(rule);
    reload(&limiter, [Rule::exempt()]);
    sleep(30 * SECOND).await;
    let pings = store.pings();
    sleep(60 * SECOND).await;
    assert_eq!(store.pings(), pings);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_in_an_outage_follow_the_reloaded_policy() {
    let store = FailingStore::new(MemoryStore::new());
    let table = |outage| [per_hour("all", 4).outage(outage)];
    let limiter = on(&store, table(Outage::Deny));
    store.fail_with(Fault::Unreachable);
    let wait = |_| tokio::spawn(limiter.acquire("a"));
    let waiting: Vec<_> = (0..4).map(wait).collect();
    let half = Outage::Local { share: 0.5 };
    for (outage, departed) in [
        (Outage::Deny, 0),
        (half, 2),
        (Outage::Deny, 2),
        (Outage::Allow, 4),
    ] {
        reload(&limiter, table(outage));
        sleep(SECOND).await;
        let count = waiting.iter().filter(|it| it.is_finished()).count();
        assert_eq!(count, departed, "{outage:?}");
    }
    let permit = limiter.acquire("a").await.expect("a permit");
    assert!(!permit.is_counted());
    reload(&limiter, table(Outage::Deny));
    let waiting = tokio::spawn(limiter.acquire("a"));
    store.recover();
    let permit = bounded(waiting).await;
    assert!(permit.expect("no panic").expect("a permit").is_counted());
}

#[tokio::test(start_paused = true)]
async fn a_set_clock_that_one_rule_reads_quarantines_the_keys_of_all() {
    for is_set_back in [true, false] {
        let clock = ManualClock::running();
        let store = FailingStore::new(MemoryStore::with_clock(clock.clone()));
        let strict = |name| per_hour(name, 1).recovery(Recovery::Strict);
        let table = || [strict("one").path("/a"), strict("other")];
        let limiters = [(); 2].map(|()| on(&store, table()));
        let is_granted = async |process: usize, name, key| {
            let rule = limiters[process].rule(name).expect("a rule");
            let decision = rule.try_acquire(key).await;
            decision.expect("a decision").is_granted()
        };
        assert!(is_granted(0, "other", "a").await);
        assert!(is_granted(0, "one", "a").await);
        let start = Instant::now();
        match is_set_back {
            true => clock.set_back(HOUR * 2),
            false => clock.advance(HOUR * 2),
        }
        // Granted or not, this call reads the clock.
        is_granted(0, "one", "b").await;
        assert!(!is_granted(0, "other", "a").await);
        // The other process finds the quarantine in the store.
        while !is_granted(1, "other", "a").await {
            sleep(SECOND * 10).await;
        }
        let rested = start.elapsed();
        assert!((HOUR..HOUR + SECOND * 60).contains(&rested), "{rested:?}");
    }
}
