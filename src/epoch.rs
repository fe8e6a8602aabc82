//! What the clones of a limiter share: [`Epochs`], one [`Epoch`] for each set of quotas.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::clock::StoreClock;
use crate::error::BuildError;
use crate::guard::Guard;
use crate::line::Lines;
use crate::policy::{Policy, PolicyParts};
use crate::quota::Quota;
use crate::store::Store;

/// The epoch for new requests, and those that others still depart in.
pub(crate) struct Epochs {
    current: ArcSwap<Epoch>,
    /// All that are in use, the current one among them; those that are not are forgotten with the
    /// next change.
    known: Mutex<Vec<Weak<Epoch>>>,
    /// What a policy is made of besides its quotas.
    parts: PolicyParts,
}

/// A policy, and all that serves the requests under it.
///
/// A request stays in the epoch in which it began, and whatever it holds goes back there.
pub(crate) struct Epoch {
    pub(crate) policy: Arc<Policy>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lines: Lines,
    pub(crate) guard: Arc<Guard>,
    pub(crate) clock: Arc<StoreClock>,
}

impl Epochs {
    pub(crate) fn new(parts: PolicyParts, store: Arc<dyn Store>) -> Result<Self, BuildError> {
        let policy = parts.clone().build()?;
        let first = Arc::new(Epoch {
            store,
            lines: Lines::default(),
            guard: Arc::new(Guard::new(policy.guard())),
            clock: Arc::new(StoreClock::new()),
            policy: Arc::new(policy),
        });
        Ok(Self {
            known: Mutex::new(vec![Arc::downgrade(&first)]),
            current: ArcSwap::new(first),
            parts,
        })
    }

    /// The epoch in which a request begins.
    pub(crate) fn current(&self) -> Arc<Epoch> {
        self.current.load_full()
    }

    /// Begins another epoch, or goes back to one of the same policy that is still in use: two would
    /// have two lines for a key, and one would overtake the other.
    pub(crate) fn set_quotas(&self, quotas: SmallVec<[Quota; 2]>) -> Result<(), BuildError> {
        let mut parts = self.parts.clone();
        parts.quotas = quotas;
        let policy = parts.build()?;
        let mut known = self.known.lock();
        known.retain(|epoch| epoch.strong_count() > 0);
        let same = known
            .iter()
            .filter_map(Weak::upgrade)
            .find(|epoch| epoch.policy.id() == policy.id());
        let next = same.unwrap_or_else(|| {
            let next = Arc::new(self.current().succeeded_by(policy));
            known.push(Arc::downgrade(&next));
            next
        });
        self.current.store(next);
        Ok(())
    }

    /// How many lines there are in all epochs.
    pub(crate) fn lines(&self) -> usize {
        let known = self.known.lock();
        let epochs = known.iter().filter_map(Weak::upgrade);
        epochs.map(|epoch| epoch.lines.len()).sum()
    }

    /// The longest wait, which is the same in all epochs.
    pub(crate) fn max_wait(&self) -> Option<Duration> {
        self.parts.max_wait
    }
}

impl Epoch {
    /// The store stays, and what was learnt about it.
    fn succeeded_by(&self, policy: Policy) -> Self {
        Self {
            store: self.store.clone(),
            lines: Lines::default(),
            guard: Arc::new(self.guard.with_floor(policy.guard())),
            clock: self.clock.clone(),
            policy: Arc::new(policy),
        }
    }
}

impl fmt::Debug for Epoch {
    // Lines refer back to their epoch.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policy", &self.policy.id())
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn epochs_that_nobody_uses_are_forgotten() {
        let quotas = |limit| [Quota::per_second(limit)].into_iter().collect();
        let parts = PolicyParts {
            quotas: quotas(1),
            ..PolicyParts::default()
        };
        let epochs = Epochs::new(parts, Arc::new(MemoryStore::new())).unwrap();
        let in_use = epochs.current();
        for limit in 2..100 {
            epochs.set_quotas(quotas(limit)).unwrap();
            // The one in use, the last one and this one.
            assert!(epochs.known.lock().len() <= 3);
        }
        epochs.set_quotas(quotas(1)).unwrap();
        assert!(Arc::ptr_eq(&epochs.current(), &in_use));
    }
}
