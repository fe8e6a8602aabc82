//! A limiter with rules: each is a policy, and they share the store.

use futures_util::future::join_all;
use tower_throttle::rules::{Rule, Rules};
use tower_throttle::{Limiter, LimiterBuilder, Outage, Quota};

use super::figures::Figures;
use super::seen::Seen;
use super::stores::Sharded;

fn two(quota: Quota) -> Rules {
    let search = Rule::named("search").path("/search").quota(quota);
    let others = Rule::named("others").quota(Quota::per_second(10));
    Rules::new([search.outage(Outage::Allow), others]).expect("valid rules")
}

fn far(store: &Sharded) -> LimiterBuilder {
    let rules = two(Quota::per_second(2));
    Limiter::builder().rules(rules).store(store.clone())
}

#[tokio::test(start_paused = true)]
async fn each_rule_is_a_policy_that_is_counted_by_its_name() {
    let figures = Figures::new();
    let limiter = figures.build(far(&Sharded::default()));
    let search = limiter.rule("search").unwrap();
    join_all((0..4).map(|_| search.acquire("a"))).await;
    limiter.acquire("a").await.unwrap();
    let granted = |policy| format!("requests_total{{outcome=granted,policy={policy}}}");
    assert_eq!(figures.number(&granted("search")), 4.0);
    assert_eq!(figures.number(&granted("others")), 1.0);

    // The series goes on under other quotas.
    let reloaded = figures.within(|| limiter.reload(two(Quota::per_second(3))));
    assert_eq!(reloaded.unwrap().changed.len(), 1);
    search.acquire("b").await.unwrap();
    assert_eq!(figures.number(&granted("search")), 5.0);
}

#[tokio::test(start_paused = true)]
async fn exempt_requests_have_no_span_and_are_not_counted() {
    let figures = Figures::new();
    let (seen, _guard) = Seen::begin();
    let rules = Rules::new([Rule::exempt()]).unwrap();
    let limiter = figures.build(Limiter::builder().rules(rules));
    limiter.acquire("a").await.unwrap();
    assert!(seen.spans().is_empty());
    let series = figures.series();
    let is_of_store = |it: &String| it.contains("policy=rules") || it.starts_with("reconnects");
    assert!(series.iter().all(is_of_store), "{series:?}");
}
