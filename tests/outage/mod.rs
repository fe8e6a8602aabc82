//! Requests while the store is out, under each outage policy, on a paused clock.

mod allow;
mod deny;
mod local;
mod probes;

use std::time::Duration;

use support::spend::build;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
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
    build(builder.store(store.clone()).outage(outage))
}

fn assert_out<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let error = answer.expect_err("the store is out");
    assert!(error.is_store(), "{error:?}");
    let message = "the store is out, and cannot say when the request may depart";
    assert_eq!(error.to_string(), message);
}

/// So many requests that arrive one after the other.
async fn queue(limiter: &Limiter, count: u32) -> Vec<JoinHandle<Instant>> {
    let mut queue = Vec::new();
    for _ in 0..count {
        let acquire = limiter.acquire("a");
        queue.push(tokio::spawn(async move {
            let permit = acquire.await.expect("it comes back");
            assert!(permit.is_valid());
            Instant::now()
        }));
        sleep(Duration::from_millis(50)).await;
    }
    queue
}

/// The last departure of a queue. All have departed in their order.
async fn last(queue: Vec<JoinHandle<Instant>>) -> Instant {
    let mut departed = Vec::new();
    for departure in queue {
        departed.push(departure.await.expect("no panic"));
    }
    assert!(departed.is_sorted(), "{departed:?}");
    departed[departed.len() - 1]
}
