//! [`Counted`]: a store that counts what is asked of it, and what became of that.

use std::sync::Arc;

use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::{Notice, Release, Reply, Reserve, Reserved, Store, StoreError, Word};

use crate::support::pass_on::pass_on;
use crate::support::tally::{Count, Tally};

/// Counts, and leaves everything to the store within. It has to pass on all there is to a store, also
/// what has a default.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    store: S,
    tally: Arc<Tally>,
}

impl<S: Store> Counted<S> {
    pub(crate) fn new(store: S, tally: Arc<Tally>) -> Self {
        Self { store, tally }
    }

    fn called(&self) {
        self.tally.one(Count::Calls);
    }
}

impl<S: Store> Store for Counted<S> {
    pass_on!(store: listen, is_listening, told_until, part, is_local);

    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.called();
        let asked = reserve.asks.iter().map(|ask| u64::from(ask.count)).sum();
        let (reply, tally) = (self.store.reserve(reserve), self.tally.clone());
        Reply::pending(async move {
            let answer = reply.await;
            if answer.as_ref().is_err_and(StoreError::is_outcome_unknown) {
                tally.add(Count::LostSlots, asked);
            }
            answer
        })
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        self.called();
        self.store.release(release)
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.called();
        self.store.peek(reserve)
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        self.called();
        self.store.heed(key, policy, word)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        self.called();
        self.store.reset(key, policy)
    }

    fn check(&self, key: &Key) -> Reply<()> {
        self.called();
        self.store.check(key)
    }
}
