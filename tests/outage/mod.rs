//! Requests while the store is out, under each outage policy, on a paused clock.

mod allow;
mod deny;
mod local;
mod probes;

use std::time::Duration;

use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::{FailingStore, Fault};
use tower_throttle::{Error, Limiter, Outage, Quota};

const LIMIT: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// The time that each answer takes.
const LATENCY: Duration = Duration::from_millis(1);

/// The time after which a call to a store that hangs fails.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A store that cannot be reached, one that hangs, and one that accepts no writes.
const FAULTS: [Fault; 3] = [Fault::Unreachable, Fault::LostReply, Fault::ReadOnly];

fn store() -> FailingStore {
    FailingStore::new(MemoryStore::new()).latency(LATENCY)
}

fn fail(store: &FailingStore, fault: Fault) {
    store.set_latency(match fault {
        Fault::LostReply => TIMEOUT,
        _ => LATENCY,
    });
    store.fail_with(fault);
}

fn recover(store: &FailingStore) {
    store.set_latency(LATENCY);
    store.recover();
}

fn limiter(store: &FailingStore, outage: Outage) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    let builder = builder.store(store.clone()).outage(outage);
    builder.build().expect("a valid policy")
}

fn assert_out<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let error = answer.expect_err("the store is out");
    assert!(error.is_store(), "{error:?}");
    let message = "the store is out, and cannot say when the request may depart";
    assert_eq!(error.to_string(), message);
}
