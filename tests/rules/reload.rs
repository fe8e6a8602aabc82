//! Rules that change while requests wait.

mod kept;
mod load;
mod waiting;

use std::pin::Pin;
use std::time::Duration;

use futures_util::poll;
use tokio::time::{sleep, timeout};
use tower_throttle::rules::{Reloaded, Rule, RuleRef};
use tower_throttle::{Acquire, Limiter, Quota};

pub(crate) use self::load::on;
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
fn a_reload_tells_of_exempt_rules_without_a_name() {
    let exempt = |path: &str| Rule::exempt().path(path);
    let limiter = limiter([per_hour("all", 1)]);
    let reloaded = reload(
        &limiter,
        [
            exempt("/a"),
            exempt("/admin/{*rest}"),
            exempt("/a"),
            per_hour("all", 1),
        ],
    );
    assert_eq!(called(&reloaded.added), ["0", "1", "2"]);
    assert!(!reloaded.is_reordered);
    assert_eq!(
        reloaded.to_string(),
        "3 added (rules[0], rules[1], rules[2]), 1 as before"
    );
    let reloaded = reload(
        &limiter,
        [
            exempt("/a"),
            exempt("/b"),
            per_hour("all", 1),
            exempt("/").name("root"),
            Rule::exempt(),
        ],
    );
    assert_eq!(called(&reloaded.added), ["1", "root", "4"]);
    assert_eq!(called(&reloaded.removed), ["1", "2"]);
    assert_eq!(called(&reloaded.unchanged), ["0", "all"]);
    assert_eq!(
        reloaded.to_string(),
        "3 added (rules[1], root, rules[4]), 2 removed (was rules[1], was rules[2]), 2 as before"
    );
}

#[test]
fn a_reload_tells_of_another_order() {
    let wide = || per_hour("wide", 1).path("/{*rest}");
    let narrow = || per_hour("narrow", 1).path("/a");
    let exempt = || Rule::exempt().path("/a/b");
    let limiter = limiter([narrow(), wide(), exempt(), Rule::exempt()]);
    let other = [wide(), narrow(), exempt(), Rule::exempt()];
    let reloaded = reload(&limiter, other);
    assert!(reloaded.is_reordered);
    assert_eq!(reloaded.to_string(), "4 as before, in another order");

    let other = [exempt(), wide(), narrow().max_waiting(9), Rule::exempt()];
    let reloaded = reload(&limiter, other);
    assert!(reloaded.is_reordered);
    assert_eq!(called(&reloaded.changed), ["narrow"]);
    assert_eq!(
        reloaded.to_string(),
        "1 changed (narrow), 3 as before, in another order"
    );

    let others = [
        exempt(),
        per_hour("new", 1).path("/new"),
        wide(),
        Rule::exempt(),
    ];
    let reloaded = reload(&limiter, others);
    assert!(!reloaded.is_reordered, "{reloaded}");
    assert_eq!(
        reloaded.to_string(),
        "1 added (new), 1 removed (narrow), 3 as before"
    );
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
            "quota: the limiter has rules, which set it: see `reload`"
        );
    }
}
