//! A recording store remembers all calls and their answers.

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::{
    FailingStore, Fault, RecordedCall, RecordedOperation, RecordingStore,
};
use tower_throttle::{Limiter, LimiterBuilder, Quota};

use super::{MS, SECOND};

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

#[tokio::test(start_paused = true)]
async fn a_burst_shares_calls() {
    let store = remote();
    let limiter = build(Limiter::builder().store(store.clone()));
    limiter.acquire("warm-up").await.expect("a permit");
    store.take_calls();
    join_all((0..10).map(|_| limiter.acquire("a"))).await;
    let calls = store.take_calls();
    assert!(calls.len() <= 2, "{calls:#?}");
    let granted: u32 = calls.iter().map(RecordedCall::granted).sum();
    assert_eq!(granted, 10);
}

#[tokio::test(start_paused = true)]
async fn failures_are_remembered() {
    let failing = FailingStore::new(MemoryStore::new());
    let store = RecordingStore::new(failing.clone());
    let limiter = build(Limiter::builder().store(store.clone()));
    limiter.acquire("a").await.expect("a permit");
    store.take_calls();
    failing.fail_next(2, Fault::Unreachable);
    limiter.acquire("a").await.expect("a permit");
    let calls = store.calls();
    let failed: Vec<_> = calls.iter().map(|call| call.error().is_some()).collect();
    assert_eq!(failed, [true, true, false, false], "{calls:#?}");
    let pings: Vec<_> = calls.iter().map(RecordedCall::is_ping).collect();
    assert_eq!(pings, [false, true, true, false]);
    assert_eq!(calls[0].granted(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_under_way_has_no_answer_yet() {
    let store = remote();
    let limiter = build(Limiter::builder().store(store.clone()));
    limiter.acquire("a").await.expect("a permit");
    store.take_calls();
    let waiting = tokio::spawn(limiter.acquire("a"));
    sleep(MS).await;
    let calls = store.calls();
    assert_eq!(calls.len(), 1);
    assert!(calls[0].answered.is_none());
    // Its answer is not taken for that of a later call.
    store.take_calls();
    let second = tokio::spawn(limiter.acquire("b"));
    waiting.await.expect("no panic").expect("a permit");
    second.await.expect("no panic").expect("a permit");
    let last = store.calls().pop().expect("the call for b");
    assert_eq!((last.operations[0].key.as_str(), last.granted()), ("b", 1));
    assert!(format!("{store:?}").contains("calls: "), "{store:?}");
}
