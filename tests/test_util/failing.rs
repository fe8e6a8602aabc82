//! A failing store fails as it is told, and otherwise does what the one inside does.

use futures_util::poll;
use tokio::time::{Instant, timeout};
use tower_throttle::key::Key;
use tower_throttle::store::{MemoryStore, Release, Reserve, Store, StoreError, Word};
use tower_throttle::test_util::{FailingStore, Fault, store_contract};
use tower_throttle::{Limiter, LimiterBuilder, Quota};

use super::{MS, SECOND};

const FAULTS: [Fault; 4] = [
    Fault::Unreachable,
    Fault::ReadOnly,
    Fault::Refusal,
    Fault::LostReply,
];

fn per_hour(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_hour(limit))
}

async fn remaining(store: impl Store) -> u32 {
    let limiter = per_hour(10).store(store).build().expect("a valid policy");
    let snapshot = limiter.peek("a").await;
    snapshot.expect("an answer").remaining()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_well_keeps_the_contract_however_slow() {
    for latency in [0, 1, 40] {
        let make = async || FailingStore::new(MemoryStore::new()).latency(latency * MS);
        assert!(!make().await.is_local());
        store_contract(make).await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_fault_says_what_it_is_and_does_what_it_says() {
    for (fault, takes_place, gives_signs_of_life, is_outage, is_unknown) in [
        (Fault::Unreachable, false, false, true, false),
        (Fault::ReadOnly, false, true, true, false),
        (Fault::Refusal, false, true, false, false),
        (Fault::LostReply, true, false, true, true),
    ] {
        let inside = MemoryStore::new();
        let store = FailingStore::new(inside.clone());
        let policy = per_hour(10).build().expect("a valid policy").policy();
        let key = Key::new("a");
        store.fail_with(fault);
        let error: StoreError = store
            .reserve(&Reserve::new(&key, &policy))
            .await
            .expect_err("it fails");
        assert_eq!(error.is_outage(), is_outage, "{fault:?}");
        assert_eq!(error.is_outcome_unknown(), is_unknown, "{fault:?}");
        assert_eq!(store.check(&key).await.is_ok(), gives_signs_of_life);
        let left = remaining(inside.clone()).await;
        assert_eq!(left, 10 - u32::from(takes_place), "{fault:?}");

        // All else fails likewise.
        let peek = store.peek(&Reserve::new(&key, &policy)).await;
        let release = store.release(&Release::new(&key, &policy, &[])).await;
        let heed = store.heed(&key, &policy, Word::None).await;
        let reset = store.reset(&key, &policy).await;
        let errors = [peek.err(), release.err(), heed.err(), reset.err()];
        let is_same = |other: &Option<StoreError>| {
            let text = other.as_ref().map(ToString::to_string);
            text == Some(error.to_string())
        };
        assert!(errors.iter().all(is_same), "{errors:?}");
        assert_eq!((store.calls(), store.checks()), (5, 1));
        assert_eq!(store.failures(), 5 + u64::from(!gives_signs_of_life));

        store.recover();
        assert!(store.reserve(&Reserve::new(&key, &policy)).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn as_many_calls_fail_as_were_told_to_signs_of_life_included() {
    for fault in FAULTS {
        let store = FailingStore::new(MemoryStore::new());
        let policy = per_hour(10).build().expect("a valid policy").policy();
        let key = Key::new("a");
        store.fail_next(3, fault);
        let mut failed = Vec::new();
        for _ in 0..3 {
            failed.push(store.reserve(&Reserve::new(&key, &policy)).await.is_err());
            failed.push(store.check(&key).await.is_err());
        }
        let checks_fail = matches!(fault, Fault::Unreachable | Fault::LostReply);
        assert_eq!(failed, [true, checks_fail, true, false, false, false]);
        store.fail_next(0, fault);
        assert!(store.check(&key).await.is_ok());
        assert!(store.reserve(&Reserve::new(&key, &policy)).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn answers_and_failures_take_as_long_as_they_are_told_to() {
    let store = FailingStore::new(MemoryStore::new()).latency(300 * MS);
    let limiter = per_hour(10).store(store.clone()).build();
    let limiter = limiter.expect("a valid policy");
    let start = Instant::now();
    limiter.peek("a").await.expect("an answer");
    assert_eq!(start.elapsed(), 300 * MS);
    store.set_latency(700 * MS);
    store.fail_with(Fault::Refusal);
    let start = Instant::now();
    limiter.peek("a").await.expect_err("it is refused");
    assert_eq!(start.elapsed(), 700 * MS);
}

/// Else nobody would come while a call is under way, as many do where there is a network.
#[tokio::test(start_paused = true)]
async fn an_answer_without_latency_takes_a_turn_of_the_runtime() {
    let store = FailingStore::new(MemoryStore::new());
    let policy = per_hour(10).build().expect("a valid policy").policy();
    let key = Key::new("a");
    let mut reply = store.reserve(&Reserve::new(&key, &policy));
    assert!(poll!(&mut reply).is_pending());
    let start = Instant::now();
    reply.await.expect("an answer");
    assert!(start.elapsed().is_zero());
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_of_one_clone_all_know() {
    let store = FailingStore::<MemoryStore>::default();
    store.clone().fail_with(Fault::Refusal);
    let limiter = per_hour(10).store(store.clone()).build();
    let refused = limiter.expect("a valid policy").acquire("a").await;
    assert!(refused.expect_err("it is refused").is_store());
    assert_eq!((store.calls(), store.failures()), (1, 1));
    assert!(format!("{store:?}").contains("Refusal"), "{store:?}");
}

/// By another replica, which reaches the store.
#[tokio::test(start_paused = true)]
async fn a_pause_that_is_said_while_it_is_unreachable_is_heard_of_when_it_is_back() {
    let inside = MemoryStore::new();
    let store = FailingStore::new(inside.clone());
    let quota = Quota::new(1, 10 * SECOND);
    let build = |builder: LimiterBuilder| builder.quota(quota).build().expect("a valid policy");
    let cut_off = build(Limiter::builder().store(store.clone()));
    let other = build(Limiter::builder().store(inside));
    cut_off.acquire("a").await.expect("the first");
    let start = Instant::now();
    let waiting = tokio::spawn(cut_off.acquire("a"));
    tokio::time::sleep(100 * MS).await;

    store.fail_with(Fault::Unreachable);
    assert!(!store.is_listening() && store.told_until().is_none());
    let paused = other.pause("a", start + 60 * SECOND);
    paused.await.expect("the other reaches it");
    tokio::time::sleep(3 * SECOND).await;
    store.recover();
    assert!(store.is_listening());
    let permit = timeout(120 * SECOND, waiting).await.expect("an end to it");
    permit.expect("no panic").expect("a permit");
    assert!(start.elapsed() >= 60 * SECOND, "{:?}", start.elapsed());
}
