//! All rules of a limiter share the store, its availability and its clock.

use std::time::Duration;

use futures_util::future::join;
use futures_util::poll;
use tokio::time::{sleep, timeout};
use tower_throttle::Limiter;
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::{FailingStore, Fault};

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
