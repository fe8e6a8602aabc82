//! [`Counted`]: a store that counts its calls, and those whose answers were lost.

use std::sync::Arc;

use tower_throttle::key::Key;
use tower_throttle::store::{Answered, Call, Nudge, Reply, Store, StoreError};

use support::tally::{Count, Tally};

/// Counts, and leaves the rest to the store inside.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    store: S,
    tally: Arc<Tally>,
}

impl<S: Store> Counted<S> {
    pub(crate) fn new(store: S, tally: Arc<Tally>) -> Self {
        Self { store, tally }
    }
}

impl<S: Store> Store for Counted<S> {
    fn call(&self, calls: Vec<Call>) -> Reply<Answered> {
        self.tally.one(Count::Calls);
        let (reply, tally) = (self.store.call(calls), self.tally.clone());
        Reply::pending(async move {
            let answer = reply.await;
            if answer.as_ref().is_err_and(StoreError::is_outcome_unknown) {
                tally.one(Count::LostCalls);
            }
            answer
        })
    }

    fn ping(&self, key: &Key) -> Reply<Answered> {
        self.tally.one(Count::Calls);
        self.store.ping(key)
    }

    fn shard(&self, key: &Key) -> u64 {
        self.store.shard(key)
    }

    fn subscribe(&self, subscriber: Box<dyn Fn(&Nudge) -> bool + Send + Sync>) {
        self.store.subscribe(subscriber);
    }

    fn is_subscribed(&self) -> bool {
        self.store.is_subscribed()
    }
}
