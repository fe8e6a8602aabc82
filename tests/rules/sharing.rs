//! All rules of a limiter share the store, its availability and its clock.

use std::time::Duration;

use futures_util::future::join;
use futures_util::poll;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::{FailingStore, Fault, ManualClock};
use tower_throttle::{Limiter, Outage, Recovery};

use crate::rules::{PATIENCE, per_hour, rules};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn an_outage_and_its_end_are_known_to_all_rules() {
    let store = FailingStore::new(MemoryStore::new());
    let table = rules([per_hour("one", 2).path("/a"), per_hour("other", 1)]);
    let builder = Limiter::builder().store(store.clone()).rules(table);
    let limiter = builder.build().expect("a limiter");
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
    let (first, second) = timeout(PATIENCE, join(first, second))
        .await
        .expect("both go on");
    assert!(first.is_ok() && second.is_ok());
    assert!(!limiter.health().is_out());
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_in_an_outage_follow_the_reloaded_policy() {
    let store = FailingStore::new(MemoryStore::new());
    let table = |outage| rules([per_hour("all", 4).outage(outage)]);
    let builder = Limiter::builder().store(store.clone());
    let limiter = builder.rules(table(Outage::Deny)).build();
    let limiter = limiter.expect("a limiter");
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
        limiter.reload(table(outage)).expect("rules");
        sleep(SECOND).await;
        let count = waiting.iter().filter(|it| it.is_finished()).count();
        assert_eq!(count, departed, "{outage:?}");
    }
    let permit = limiter.acquire("a").await.expect("a permit");
    assert!(!permit.is_counted());
    limiter.reload(table(Outage::Deny)).expect("rules");
    let waiting = tokio::spawn(limiter.acquire("a"));
    store.recover();
    let permit = timeout(PATIENCE, waiting).await.expect("it departs");
    let permit = permit.expect("no panic").expect("a permit");
    assert!(permit.is_counted());
}

#[tokio::test(start_paused = true)]
async fn a_set_clock_that_one_rule_reads_quarantines_the_keys_of_all() {
    const HOUR: Duration = Duration::from_secs(3_600);
    for is_set_back in [true, false] {
        let clock = ManualClock::running();
        let store = FailingStore::new(MemoryStore::with_clock(clock.clone()));
        let strict = |name| per_hour(name, 1).recovery(Recovery::Strict);
        let limiters = [(); 2].map(|()| {
            let table = rules([strict("one").path("/a"), strict("other")]);
            let builder = Limiter::builder().store(store.clone()).rules(table);
            builder.build().expect("a limiter")
        });
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
