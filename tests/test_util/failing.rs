//! A failing store fails as its test says, and otherwise does what the store inside does.

use tokio::time::sleep;
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::{FailingStore, Fault, RecordingStore};
use tower_throttle::{Limiter, LimiterBuilder, Quota};

use super::MS;

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
