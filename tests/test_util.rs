//! The utilities for users' tests do what they promise: a manual clock, and a store that fails.

use tower_throttle::store::contents::{Command, Operation};
use tower_throttle::store::{Call, Store};
use tower_throttle::test_util::ManualClock;

use crate::prelude::*;

const TICK: Duration = Duration::from_micros(1);

async fn granted(limiter: &Limiter) -> bool {
    let decision = limiter.try_acquire("a").await;
    decision.expect("a decision").is_granted()
}

async fn delay(limiter: &Limiter) -> Duration {
    limiter.peek("a").await.expect("an answer").delay()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_refused_until_the_tick_at_which_its_delay_ends() {
    for text in [
        "3/h",
        "3/h sliding-buckets buckets=6",
        "3/h spacing",
        "3/h gcra burst=2",
        "3/h leaky-bucket capacity=5",
        "3/d fixed-window",
        "3/d fixed-window start=first-request",
    ] {
        let clock = ManualClock::new();
        let limiter = build(under(&[text]).store(MemoryStore::with_clock(clock.clone())));
        for _ in 0..3 {
            while granted(&limiter).await {}
            let promised = delay(&limiter).await;
            clock.advance(promised - TICK);
            assert!(!granted(&limiter).await, "{text}");
            assert_eq!(delay(&limiter).await, TICK, "{text}");
            clock.advance(TICK);
            assert!(granted(&limiter).await, "{text}");
        }
    }
}

fn limiter(store: impl Store) -> Limiter {
    build(under(&["10/h"]).store(store))
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
    assert_eq!((store.calls(), store.pings(), store.failures()), (6, 1, 2));
}
