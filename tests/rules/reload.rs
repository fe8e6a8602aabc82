//! Rules that change while requests wait.

mod kept;
mod waiting;

use std::pin::Pin;
use std::time::Duration;

use futures_util::poll;
use tokio::time::{sleep, timeout};
use tower_throttle::rules::{Reloaded, Rule, RuleRef};
use tower_throttle::{Acquire, Limiter, Quota};

use crate::rules::{PATIENCE, limiter, per_hour, rules};

const SECOND: Duration = Duration::from_secs(1);
const GUARD: Duration = Duration::from_millis(10);

/// The distance between departures with a limit of 1.
const STEP: Duration = Duration::from_millis(1_010);

fn per_second(limit: u32) -> Rule {
    Rule::named("all")
        .quota(Quota::per_second(limit))
        .guard(GUARD)
}

fn reload(limiter: &Limiter, all: impl IntoIterator<Item = Rule>) -> Reloaded {
    limiter.reload(rules(all)).expect("a limiter with rules")
}

/// A request that has its place in the queue.
async fn waiter(limiter: &Limiter) -> Pin<Box<Acquire>> {
    let mut waiter = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut waiter).is_pending());
    waiter
}

/// Waits until no queue is left, so that nothing more will change.
async fn settle(limiter: &Limiter) {
    let no_queue = async {
        while limiter.queues() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, no_queue).await.expect("no queue is left");
}

/// The rules by name, or by place if they have none.
fn called(rules: &[RuleRef]) -> Vec<String> {
    let called = |rule: &RuleRef| match rule.name() {
        Some(name) => name.to_owned(),
        None => rule.place().to_string(),
    };
    rules.iter().map(called).collect()
}

#[test]
fn a_reload_tells_what_has_changed() {
    let limiter = limiter([
        per_hour("a", 1).path("/a"),
        per_hour("b", 1).path("/b"),
        per_hour("c", 1).path("/c"),
        per_hour("d", 1),
    ]);
    let reloaded = reload(
        &limiter,
        [
            per_hour("c", 1).path("/c"),
            per_hour("b", 1).path("/bb"),
            per_hour("e", 1).path("/e"),
            per_hour("d", 2),
        ],
    );
    assert_eq!(called(&reloaded.added), ["e"]);
    assert_eq!(called(&reloaded.removed), ["a"]);
    assert_eq!(called(&reloaded.changed), ["b", "d"]);
    assert_eq!(called(&reloaded.unchanged), ["c"]);
    assert_eq!(
        reloaded.to_string(),
        "1 added (e), 1 removed (a), 2 changed (b, d), 1 as before, in another order"
    );
    assert_eq!(limiter.rules().expect("rules").len(), 4);
}

#[test]
fn without_rules_there_is_nothing_to_reload_and_with_rules_no_quotas_to_set() {
    let plain = Limiter::builder()
        .quota(Quota::per_second(1))
        .build()
        .expect("a limiter");
    assert!(plain.rules().is_none() && plain.rule("all").is_none());
    let error = plain.reload(rules([per_second(1)])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rules: this limiter has one policy: see `set_quotas`"
    );
    let ruled = limiter([per_second(1)]);
    for limiter in [&ruled, &ruled.rule("all").expect("a rule")] {
        let error = limiter.set_quota(Quota::per_second(2)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "quota: the rules of the limiter set it: change them, and call `reload`"
        );
    }
}
