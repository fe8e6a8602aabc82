//! A failing store fails as its test says, and otherwise does what the store inside does.

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::{FailingStore, Fault, RecordingStore};
use tower_throttle::{Limiter, LimiterBuilder, Quota};

use super::{MS, SECOND};

fn per_hour(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_hour(limit))
}

async fn remaining(store: MemoryStore) -> u32 {
    let limiter = per_hour(10).store(store).build().expect("a valid policy");
    let snapshot = limiter.peek("a").await;
    snapshot.expect("an answer").remaining()
}

#[tokio::test(start_paused = true)]
async fn each_fault_fails_calls_as_its_table_says() {
    for (fault, is_applied, pings, is_outage, is_unknown) in [
        (Fault::Unreachable, false, false, true, false),
        (Fault::ReadOnly, false, true, true, false),
        (Fault::Refusal, false, true, false, false),
        (Fault::LostRequest, false, false, true, true),
        (Fault::LostReply, true, false, true, true),
    ] {
        let inside = MemoryStore::new();
        let failing = FailingStore::new(inside.clone());
        let store = RecordingStore::new(failing.clone());
        let limiter = per_hour(10).store(store.clone()).build();
        let limiter = limiter.expect("a valid policy");
        limiter.acquire("other").await.expect("a permit");
        store.take_calls();
        failing.fail_with(fault);
        let waiting = tokio::spawn(limiter.acquire("a"));
        sleep(MS).await;
        let call = &store.take_calls()[0];
        let error = call.error().expect("the call fails");
        assert_eq!(error.is_outage(), is_outage, "{fault:?}");
        assert_eq!(error.is_outcome_unknown(), is_unknown, "{fault:?}");
        let left = remaining(inside.clone()).await;
        assert_eq!(left, 10 - u32::from(is_applied), "{fault:?}");
        sleep(200 * MS).await;
        let pinged: Vec<_> = store
            .calls()
            .iter()
            .filter(|call| call.is_ping())
            .cloned()
            .collect();
        assert_eq!(pinged.is_empty(), !is_outage, "{fault:?}");
        let succeed = pinged.iter().all(|call| call.error().is_none());
        assert!(pinged.is_empty() || succeed == pings, "{fault:?}");

        failing.recover();
        let result = waiting.await.expect("no panic");
        assert_eq!(result.is_ok(), is_outage, "{fault:?}: {result:?}");
    }
}

/// The limiter makes a call again whose outcome is unknown. So the request departs.
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_store_is_survived() {
    let store = FailingStore::new(MemoryStore::new());
    let limiter = per_hour(10).store(store.clone()).build();
    let limiter = limiter.expect("a valid policy");
    limiter.acquire("a").await.expect("a permit");
    store.fail_next(1, Fault::Panic);
    limiter.acquire("a").await.expect("a permit");
    assert_eq!(store.failures(), 1);
}

#[tokio::test(start_paused = true)]
async fn as_many_calls_fail_as_the_test_says() {
    let store = FailingStore::new(MemoryStore::new());
    let limiter = per_hour(10).store(store.clone()).build();
    let limiter = limiter.expect("a valid policy");
    limiter.acquire("a").await.expect("a permit");
    store.fail_next(2, Fault::Refusal);
    let mut failed = Vec::new();
    for _ in 0..4 {
        failed.push(limiter.acquire("a").await.is_err());
    }
    assert_eq!(failed, [true, true, false, false]);
    store.fail_next(0, Fault::Refusal);
    assert!(limiter.acquire("a").await.is_ok());
    assert_eq!((store.calls(), store.pings(), store.failures()), (6, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn answers_and_failures_take_the_latency() {
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

#[tokio::test(start_paused = true)]
async fn clones_share_faults_and_counts() {
    let store = FailingStore::<MemoryStore>::default();
    store.clone().fail_with(Fault::Refusal);
    let limiter = per_hour(10).store(store.clone()).build();
    let refused = limiter.expect("a valid policy").acquire("a").await;
    assert!(refused.expect_err("it is refused").is_store());
    assert_eq!((store.calls(), store.failures()), (1, 1));
    assert!(format!("{store:?}").contains("Refusal"), "{store:?}");
}

/// Another process, which reaches the store, pauses the key.
#[tokio::test(start_paused = true)]
async fn a_pause_during_an_outage_holds_afterwards() {
    let inside = MemoryStore::new();
    let store = FailingStore::new(inside.clone());
    let build = |builder: LimiterBuilder| {
        let builder = builder.quota(Quota::new(1, 10 * SECOND));
        builder.build().expect("a valid policy")
    };
    let cut_off = build(Limiter::builder().store(store.clone()));
    let other = build(Limiter::builder().store(inside));
    cut_off.acquire("a").await.expect("the first");
    let start = Instant::now();
    let waiting = join_all([tokio::spawn(cut_off.acquire("a"))]);
    sleep(100 * MS).await;
    store.fail_with(Fault::Unreachable);
    other
        .pause("a", start + 60 * SECOND)
        .await
        .expect("the other reaches it");
    sleep(3 * SECOND).await;
    store.recover();
    for result in waiting.await {
        result.expect("no panic").expect("a permit");
    }
    assert!(start.elapsed() >= 60 * SECOND, "{:?}", start.elapsed());
}
