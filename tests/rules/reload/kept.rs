//! What a limiter knows of a rule that the store does not: it outlasts reloads, also without that rule.

use futures_util::poll;
use http::Response;
use tokio::time::{Instant, sleep, timeout};
use tower::{BoxError, Layer as _, Service as _, service_fn};
use tower_throttle::rules::Rule;
use tower_throttle::{Limiter, Outage, ThrottleLayer};

use super::{SECOND, reload};
use crate::support::switched::{Mode, Switched};
use crate::{PATIENCE, get, limiter, per_hour, rules};

fn local() -> Rule {
    per_hour("all", 4).outage(Outage::Local { share: 1.0 })
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

/// The store is out.
fn out(rule: Rule) -> (Switched, Limiter) {
    let store = Switched::default();
    let builder = Limiter::builder().store(store.clone()).rules(rules([rule]));
    store.switch(Mode::Refuses);
    (store, builder.build().expect("a limiter"))
}

#[tokio::test(start_paused = true)]
async fn what_departed_by_a_share_counts_though_the_rule_was_gone_meanwhile() {
    let (_store, limiter) = out(local());
    assert_eq!(granted(&limiter).await, 4);
    reload(&limiter, [Rule::exempt()]);
    reload(&limiter, [local()]);
    assert_eq!(granted(&limiter).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_departed_by_a_share_counts_though_nothing_stood_in_meanwhile() {
    let (_store, limiter) = out(per_hour("all", 4));
    assert_eq!(granted(&limiter).await, 0);
    for departs in [4, 0, 0] {
        reload(&limiter, [local()]);
        assert_eq!(granted(&limiter).await, departs);
        reload(&limiter, [per_hour("all", 4)]);
        assert_eq!(granted(&limiter).await, 0);
    }
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

/// Also by the first policy that the rule ever had, which all others come after.
#[tokio::test(start_paused = true)]
async fn a_request_keeps_the_policy_that_it_was_judged_by() {
    for before in [None, Some(per_hour("all", 11))] {
        let five = || per_hour("all", 10).cost(5);
        let limiter = limiter([before.unwrap_or_else(five)]);
        reload(&limiter, [five()]);
        let echo = service_fn(async |_| Ok::<_, BoxError>(Response::new(())));
        let mut service = ThrottleLayer::new(limiter.clone()).layer(echo);
        let made = service.call(get("http://a.example/"));
        reload(&limiter, [per_hour("all", 2)]);
        made.await.expect("it departs by 10 per hour");
    }
}

/// They were told to leave for what stood in, and find that nothing does any more.
#[tokio::test(start_paused = true)]
async fn who_finds_nothing_that_stands_in_waits_for_the_store() {
    let (store, limiter) = out(local());
    let mut waiting = [limiter.acquire("a"), limiter.acquire("a")].map(Box::pin);
    for waiter in &mut waiting {
        assert!(poll!(waiter).is_pending());
    }
    sleep(SECOND / 10).await;
    reload(&limiter, [per_hour("all", 4)]);
    let mut third = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut third).is_pending());
    for waiter in &mut waiting {
        let answer = timeout(SECOND, waiter).await;
        assert!(answer.is_err(), "it waits, and so do those after it");
    }
    store.switch(Mode::Works);
    for waiter in waiting.iter_mut().chain([&mut third]) {
        let permit = timeout(PATIENCE, waiter).await.expect("it goes on");
        assert!(permit.expect("a permit").is_counted());
    }
}
