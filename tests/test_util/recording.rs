//! A recording store remembers all calls and their answers.

use tokio::time::{Instant, sleep};
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::{FailingStore, RecordedOperation, RecordingStore};
use tower_throttle::{Limiter, LimiterBuilder, Quota};

use super::SECOND;

const LATENCY: std::time::Duration = std::time::Duration::from_millis(2);

fn remote() -> RecordingStore<FailingStore> {
    RecordingStore::new(FailingStore::new(MemoryStore::new()).latency(LATENCY))
}

fn build(builder: LimiterBuilder) -> Limiter {
    let builder = builder.quota(Quota::per_hour(10));
    builder.build().expect("a valid policy")
}

#[tokio::test(start_paused = true)]
async fn each_call_is_remembered_with_its_answer() {
    let store = remote();
    let limiter = build(Limiter::builder().name("orders").store(store.clone()));
    let start = Instant::now();
    let permit = limiter.acquire("a").cost(3).await.expect("a permit");
    permit.forfeit();
    sleep(SECOND).await;
    let until = Instant::now() + 60 * SECOND;
    limiter.pause("b", until).await.expect("a pause");

    let calls = store.take_calls();
    let operations = calls.iter().flat_map(|call| &call.operations);
    let kinds: Vec<_> = operations.map(RecordedOperation::kind).collect();
    assert_eq!(kinds, ["take", "settle", "pause"], "{calls:#?}");
    assert!(calls[0].is_ping() && !calls[1].is_ping());
    let take = &calls[1];
    assert_eq!((take.units(), take.granted()), (3, 1));
    assert_eq!(take.sent, start + LATENCY);
    let answered = take.answered.as_ref().expect("it is answered");
    assert_eq!(answered.as_ref().ok(), Some(&(take.sent + LATENCY)));
    let operation = &take.operations[0];
    assert_eq!(operation.key.as_str(), "a");
    assert_eq!(operation.policy.as_deref(), Some("orders"));
    assert!(operation.granted() == 1 && operation.error().is_none());
    let last = calls.last().expect("the pause");
    assert_eq!((last.units(), last.granted()), (0, 0));
    assert_eq!(last.operations[0].key.as_str(), "b");
    assert!(store.calls().is_empty(), "they were taken");
}
