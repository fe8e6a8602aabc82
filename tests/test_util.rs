//! The store for users' tests fails as it promises.

use tower_throttle::store::contents::{Command, Operation};

use crate::prelude::*;

fn limiter(store: impl Store) -> Limiter {
    build(under(&["10/h"]).store(store))
}

#[tokio::test(start_paused = true)]
async fn each_fault_fails_calls_as_its_table_says() {
    for (fault, is_applied, pings, is_outage, is_unknown) in [
        (Fault::Unreachable, false, false, true, false),
        (Fault::ReadOnly, false, false, true, false),
        (Fault::Refusal, false, true, false, false),
        (Fault::LostRequest, false, false, true, true),
        (Fault::LostReply, true, false, true, true),
    ] {
        let embedded = MemoryStore::new();
        let store = FailingStore::new(embedded.clone());
        let (inside, limiter) = (limiter(embedded), limiter(store.clone()));
        limiter.acquire("other").await.expect("a permit");
        store.fail_with(fault);

        let (span, evidence) = (60_000_000, u64::MAX);
        let pause = Operation::Control(Command::Pause { span, evidence });
        let call = Call::new(&"paused".into(), &limiter.policy(), &pause);
        let error = store.call(vec![call]).await.expect_err("the call fails");
        assert_eq!(error.is_outage(), is_outage, "{fault:?}");
        assert_eq!(error.is_outcome_unknown(), is_unknown, "{fault:?}");
        let delay = inside.peek("paused").await.expect("an answer").delay();
        assert_eq!(!delay.is_zero(), is_applied, "{fault:?}");
        let ping = store.ping(&"paused".into()).await;
        assert_eq!(ping.is_ok(), pings, "{fault:?}");

        let before = store.pings();
        let waiting = tokio::spawn(limiter.acquire("a"));
        sleep(Duration::from_millis(200)).await;
        assert_eq!(store.pings() > before, is_outage, "{fault:?}");
        store.recover();
        let result = waiting.await.expect("no panic");
        assert_eq!(result.is_ok(), is_outage, "{fault:?}: {result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn as_many_calls_fail_as_the_test_says() {
    let store = FailingStore::new(MemoryStore::new());
    let limiter = limiter(store.clone());
    limiter.acquire("a").await.expect("a permit");
    store.fail_next(2, Fault::Refusal);
    let mut failed = Vec::new();
    for _ in 0..4 {
        failed.push(limiter.acquire("a").await.is_err());
    }
    assert_eq!(failed, [true, true, false, false]);
    store.fail_next(0, Fault::Refusal);
    assert!(limiter.acquire("a").await.is_ok());
    assert_eq!((store.calls(), store.pings()), (6, 1));
}

#[tokio::test(start_paused = true)]
async fn every_key_is_in_quarantine_after_a_loss_also_one_that_is_new() {
    let store = FailingStore::new(MemoryStore::new());
    let builder = under(&["10/h"]).recovery(Recovery::Strict);
    let limiter = build(builder.store(store.clone()));
    attempt(&limiter, "a", 1).await.expect("a permit");
    store.lose_state();
    for key in ["a", "b"] {
        attempt(&limiter, key, 1).await.expect_err("in quarantine");
    }
    sleep(HOUR + 5 * SECOND).await;
    attempt(&limiter, "b", 1).await.expect("a permit");
}
