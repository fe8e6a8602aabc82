//! Departures and pauses of a rule outlast reloads, also those that remove the rule.

use tokio::time::{Instant, sleep};
use tower_throttle::rules::Rule;
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::{FailingStore, Fault};
use tower_throttle::{Limiter, Outage};

use super::{SECOND, reload};
use crate::rules::{limiter, per_hour, rules};

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
async fn a_pause_holds_over_other_quotas_and_while_the_rule_is_gone() {
    for quota_at_last in [5, 6] {
        let limiter = limiter([per_hour("all", 4)]);
        let until = Instant::now() + SECOND * 60;
        limiter.pause("a", until).await.expect("a pause");
        reload(&limiter, [per_hour("all", 5)]);
        reload(&limiter, [Rule::exempt()]);
        reload(&limiter, [Rule::exempt()]);
        reload(&limiter, [per_hour("all", quota_at_last)]);
        assert_eq!(granted(&limiter).await, 0, "it is paused");
        sleep(SECOND * 61).await;
        assert_eq!(granted(&limiter).await, quota_at_last as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn departures_by_a_share_count_after_outages_were_denied_and_the_rule_was_gone() {
    let denied = || per_hour("all", 4);
    let store = FailingStore::new(MemoryStore::new());
    store.fail_with(Fault::Unreachable);
    let builder = Limiter::builder().store(store).rules(rules([denied()]));
    let limiter = builder.build().expect("a limiter");
    assert_eq!(granted(&limiter).await, 0);
    for departs in [4, 0, 0] {
        reload(&limiter, [denied().outage(Outage::Local { share: 1.0 })]);
        assert_eq!(granted(&limiter).await, departs);
        reload(&limiter, [denied()]);
        assert_eq!(granted(&limiter).await, 0);
        reload(&limiter, [Rule::exempt()]);
    }
}
