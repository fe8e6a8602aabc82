//! A recording store remembers all that it was asked, and what it has answered.

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::key::Key;
use tower_throttle::store::{MemoryStore, Reserve, Store, Word};
use tower_throttle::test_util::{
    Call, FailingStore, Fault, Operation, RecordingStore, store_contract,
};
use tower_throttle::{Limiter, LimiterBuilder, Quota};

use super::{MS, SECOND};

const LATENCY: std::time::Duration = std::time::Duration::from_millis(2);

fn remote() -> RecordingStore<FailingStore> {
    RecordingStore::new(FailingStore::new(MemoryStore::new()).latency(LATENCY))
}

fn per_hour(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_hour(limit))
}

fn operations(calls: &[Call]) -> Vec<(Operation, u32)> {
    let shown = |call: &Call| (call.operation(), call.requests());
    calls.iter().map(shown).collect()
}

#[tokio::test(start_paused = true)]
async fn a_recorded_store_keeps_the_contract() {
    store_contract(async || RecordingStore::new(MemoryStore::new())).await;
    store_contract(async || remote()).await;
}

#[tokio::test(start_paused = true)]
async fn tells_of_each_call_what_it_was_and_what_came_of_it() {
    let store = remote();
    let limiter = per_hour(10).name("orders").store(store.clone()).build();
    let limiter = limiter.expect("a valid policy");
    let start = Instant::now();
    let permit = limiter.acquire("a").cost(3).await.expect("a permit");
    permit.forfeit();
    sleep(SECOND).await;
    limiter.peek("a").cost(2).await.expect("a look");
    let until = Instant::now() + 60 * SECOND;
    limiter.pause("a", until).await.expect("a pause");
    limiter.reset("b").await.expect("a reset");

    let calls = store.take_calls();
    let expected = [
        (Operation::Reserve, 1),
        (Operation::Release, 0),
        (Operation::Peek, 1),
        (Operation::Heed, 0),
        // Others have heard of a pause, too.
        (Operation::Heed, 0),
        (Operation::Reset, 0),
    ];
    assert_eq!(operations(&calls), expected);
    let [reserve, release, peek, pause, resume, reset] = &calls[..] else {
        unreachable!("there are six");
    };
    assert!(calls[..4].iter().all(|call| call.key().as_str() == "a"));
    assert!(calls[4..].iter().all(|call| call.key().as_str() == "b"));
    let id = limiter.policy().id().to_owned();
    assert!(id.starts_with("orders:"));
    assert!(calls.iter().all(|call| call.policy() == Some(&id)));

    assert_eq!((reserve.cost(), peek.cost()), (3, 2));
    assert_eq!(reserve.asks()[0].max_wait, u64::MAX);
    assert_eq!(
        (reserve.sent(), reserve.answered()),
        (start, Some(start + LATENCY))
    );
    let slots: Vec<_> = reserve.granted().cloned().collect();
    assert_eq!(slots.len(), 1);
    assert_eq!(release.released(), slots);
    assert_eq!(peek.reserved().map(|answer| answer.remaining()), Some(10));
    assert_eq!(peek.granted().count(), 0);
    assert!(matches!(pause.word(), Some(Word::Pause { .. })));
    assert!(pause.notice().is_some_and(|notice| notice.paused > 0));
    assert_eq!(resume.word(), Some(Word::Resume));
    assert!(reset.answered().is_some() && reset.error().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_line_that_stands_asks_for_all_who_come_at_once_in_one_call() {
    let store = remote();
    let limiter = Limiter::builder().quota(Quota::per_second(1));
    let limiter = limiter
        .store(store.clone())
        .build()
        .expect("a valid policy");
    limiter.acquire("a").await.expect("a permit");
    let waiting = tokio::spawn(limiter.acquire("a"));
    sleep(100 * MS).await;
    store.take_calls();
    let five = (0..5).map(|_| limiter.acquire("a").max_wait(60 * SECOND));
    for permit in join_all(five).await {
        permit.expect("a permit");
    }
    waiting.await.expect("no panic").expect("a permit");
    assert_eq!(operations(&store.take_calls()), [(Operation::Reserve, 5)]);
}

#[tokio::test(start_paused = true)]
async fn an_embedded_store_stays_one_and_is_asked_for_each_request_alone() {
    let store = RecordingStore::<MemoryStore>::default();
    assert!(store.is_local() && !remote().is_local());
    let limiter = per_hour(3).store(store.clone()).build();
    let limiter = limiter.expect("a valid policy");
    for _ in 0..5 {
        let _ = limiter.try_acquire("a").await.expect("a decision");
    }
    let calls = store.calls();
    assert_eq!(operations(&calls), [(Operation::Reserve, 1); 5]);
    let granted: usize = calls.iter().map(|call| call.granted().count()).sum();
    assert_eq!(granted, 3);
}

#[tokio::test(start_paused = true)]
async fn failures_are_remembered_and_so_are_signs_of_life() {
    let failing = FailingStore::new(MemoryStore::new());
    let store = RecordingStore::new(failing.clone());
    let limiter = per_hour(3).store(store.clone()).build();
    let limiter = limiter.expect("a valid policy");
    failing.fail_next(2, Fault::LostReply);
    limiter.acquire("a").await.expect("a permit");
    let calls = store.calls();
    let expected = [
        (Operation::Reserve, 1),
        (Operation::Check, 0),
        (Operation::Check, 0),
        (Operation::Reserve, 1),
    ];
    assert_eq!(operations(&calls), expected);
    let failed: Vec<_> = calls.iter().map(|call| call.error().is_some()).collect();
    assert_eq!(failed, [true, true, false, false]);
    // Who asks for a sign of life loses no slot.
    let is_unknown = |call: &Call| call.error().map(|it| it.is_outcome_unknown());
    assert_eq!(
        (is_unknown(&calls[0]), is_unknown(&calls[1])),
        (Some(true), Some(false))
    );
    assert_eq!(calls[1].policy(), None);
    assert_eq!(calls[0].reserved().map(|_| ()), None);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_is_never_answered() {
    let store = remote();
    let policy = per_hour(3).build().expect("a valid policy").policy();
    let key = Key::new("a");
    let reserve = || store.reserve(&Reserve::new(&key, &policy));
    drop(reserve());
    let under_way = reserve();
    assert!(store.calls().iter().all(|call| call.answered().is_none()));
    assert_eq!(store.take_calls().len(), 2);
    // Nor is one that is no longer remembered mistaken for another.
    let next = reserve();
    under_way.await.expect("an answer");
    assert_eq!(store.calls()[0].answered(), None);
    next.await.expect("an answer");
    assert!(store.calls()[0].answered().is_some());
    assert!(format!("{store:?}").contains("calls: 1"), "{store:?}");
}
