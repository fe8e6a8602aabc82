//! What the clones of a limiter share: [`Epochs`], one [`Epoch`] for each set of quotas.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::clock::StoreClock;
use crate::denial::Denials;
use crate::error::BuildError;
use crate::guard::Guard;
use crate::key::Key;
use crate::line::Lines;
use crate::pauses::Pauses;
use crate::policy::{Policy, PolicyParts};
use crate::quota::Quota;
use crate::store::{Listen, MemoryStore, Notice, Store};

/// The epochs of a limiter; clones share them.
///
/// The handle is the first epoch, which knows those after it: until the quotas change, a request that
/// begins makes it the handle of its own epoch, and touches nothing else that is shared.
#[derive(Clone)]
pub(crate) struct Epochs(Arc<Epoch>);

/// A policy, and all that serves the requests under it.
///
/// A request stays in the epoch in which it began, and whatever it holds goes back there.
pub(crate) struct Epoch {
    pub(crate) policy: Arc<Policy>,
    pub(crate) store: Arc<dyn Store>,
    /// The same store, if it is an embedded one.
    pub(crate) embedded: Option<MemoryStore>,
    /// What is known without asking the store, if that would take a call.
    pub(crate) denials: Option<Denials>,
    pub(crate) lines: Lines,
    pub(crate) guard: Arc<Guard>,
    pub(crate) clock: Arc<StoreClock>,
    /// Of all epochs.
    pub(crate) pauses: Arc<Pauses>,
    /// The first epoch, unless this is it.
    first: Weak<Self>,
    /// Of the first one.
    later: Later,
}

/// The epochs after the first.
#[derive(Default)]
struct Later {
    /// Whether new requests begin in one of them.
    is_current: AtomicBool,
    current: ArcSwapOption<Epoch>,
    /// All that are in use, the current one among them; those that are not are forgotten with the
    /// next change.
    known: Mutex<Vec<Weak<Epoch>>>,
    /// What a policy is made of besides its quotas.
    parts: PolicyParts,
}

impl Epochs {
    /// With denials of so many keys.
    pub(crate) fn new(
        parts: PolicyParts,
        store: Arc<dyn Store>,
        denials: usize,
    ) -> Result<Self, BuildError> {
        let policy = parts.clone().build()?;
        let denials = if store.is_local() { 0 } else { denials };
        let first = Arc::new(Epoch {
            denials: Denials::new(denials),
            embedded: store.as_embedded().cloned(),
            store,
            lines: Lines::default(),
            guard: Arc::new(Guard::new(policy.guard())),
            clock: Arc::new(StoreClock::new()),
            pauses: Arc::default(),
            first: Weak::new(),
            policy: Arc::new(policy),
            later: Later {
                parts,
                ..Later::default()
            },
        });
        let listener: Weak<Epoch> = Arc::downgrade(&first);
        first.store.listen(listener);
        Ok(Self(first))
    }

    /// The epoch in which a request begins.
    #[inline]
    pub(crate) fn current(self) -> Arc<Epoch> {
        self.0.later.current().unwrap_or(self.0)
    }

    /// Begins another epoch, or goes back to one of the same policy that is still in use: two would
    /// have two lines for a key, and one would overtake the other.
    pub(crate) fn set_quotas(&self, quotas: SmallVec<[Quota; 2]>) -> Result<(), BuildError> {
        let Self(first) = self;
        let later = &first.later;
        let mut parts = later.parts.clone();
        parts.quotas = quotas;
        let policy = parts.build()?;
        let mut known = later.known.lock();
        known.retain(|epoch| epoch.strong_count() > 0);
        if policy.id() == first.policy.id() {
            later.is_current.store(false, Ordering::Release);
            later.current.store(None);
            return Ok(());
        }
        let same = known
            .iter()
            .filter_map(Weak::upgrade)
            .find(|epoch| epoch.policy.id() == policy.id());
        let next = same.unwrap_or_else(|| {
            let current = self.clone().current();
            let next = Arc::new(current.succeeded_by(policy, Arc::downgrade(first)));
            known.push(Arc::downgrade(&next));
            next
        });
        later.current.store(Some(next));
        later.is_current.store(true, Ordering::Release);
        Ok(())
    }

    /// How many lines there are in all epochs.
    pub(crate) fn lines(&self) -> usize {
        self.0.all_lines()
    }
}

impl Later {
    #[inline]
    fn current(&self) -> Option<Arc<Epoch>> {
        if self.is_current.load(Ordering::Acquire) {
            self.current.load_full()
        } else {
            None
        }
    }
}

impl Epoch {
    /// Something was said of a key under the quotas of this epoch: whoever waits for it keeps to that,
    /// whatever quotas were set when it came.
    pub(crate) fn hear(&self, key: &Key, notice: Notice) {
        self.pauses.note(key, &self.policy, notice);
        self.each(|epoch| {
            epoch.forget_denial(key);
            epoch.lines.hear(key, notice);
        });
    }

    /// The same, but for those who hold slots.
    pub(crate) fn note(&self, key: &Key, notice: Notice) {
        self.pauses.note(key, &self.policy, notice);
        self.forget_denial(key);
    }

    /// A slot of this key is given back, or all are: what was known of it holds no longer.
    pub(crate) fn forget_denial(&self, key: &Key) {
        if let Some(denials) = &self.denials {
            denials.forget(key);
        }
    }

    /// The store stays, and what was learnt about it.
    fn succeeded_by(&self, policy: Policy, first: Weak<Self>) -> Self {
        Self {
            store: self.store.clone(),
            embedded: self.embedded.clone(),
            denials: self.denials.as_ref().and_then(Denials::successor),
            lines: Lines::default(),
            guard: Arc::new(self.guard.with_floor(policy.guard())),
            clock: self.clock.clone(),
            pauses: self.pauses.clone(),
            first,
            policy: Arc::new(policy),
            later: Later::default(),
        }
    }
}

/// The first epoch listens for all.
impl Listen for Epoch {
    fn hear(&self, policy: &str, key: &Key, notice: Notice) {
        self.each(|epoch| {
            if epoch.policy.id() == policy {
                Self::hear(epoch, key, notice);
            }
        });
    }

    fn gap(&self) {
        self.each(|epoch| {
            if let Some(denials) = &epoch.denials {
                denials.forget_all();
            }
            epoch.lines.miss();
        });
    }

    fn is_waiting(&self) -> bool {
        self.all_lines() > 0
    }
}

impl Epoch {
    /// How many lines there are in all epochs of the limiter, where this is the first.
    fn all_lines(&self) -> usize {
        let later: usize = self.family().iter().map(|epoch| epoch.lines.len()).sum();
        self.lines.len() + later
    }

    /// The epochs after the first that are in use.
    fn family(&self) -> Vec<Arc<Self>> {
        let first = self.first.upgrade();
        let later = &first.as_deref().unwrap_or(self).later;
        let known = later.known.lock();
        known.iter().filter_map(Weak::upgrade).collect()
    }

    /// All others that are in use.
    pub(crate) fn others(&self) -> Vec<Arc<Self>> {
        let mut all = self.family();
        all.extend(self.first.upgrade());
        all.retain(|epoch| !std::ptr::eq(&**epoch, self));
        all
    }

    /// All epochs of the limiter that are in use.
    pub(crate) fn each(&self, tell: impl Fn(&Self)) {
        match self.first.upgrade() {
            Some(first) => tell(&first),
            None => tell(self),
        }
        self.family().iter().for_each(|epoch| tell(epoch));
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

    #[test]
    fn epochs_that_nobody_uses_are_forgotten() {
        let quotas = |limit| [Quota::per_second(limit)].into_iter().collect();
        let parts = PolicyParts {
            quotas: quotas(1),
            ..PolicyParts::default()
        };
        let epochs = Epochs::new(parts, Arc::new(MemoryStore::new()), 0).unwrap();
        epochs.set_quotas(quotas(2)).unwrap();
        let in_use = epochs.clone().current();
        for limit in 3..100 {
            epochs.set_quotas(quotas(limit)).unwrap();
            // The one in use, the last one and this one.
            assert!(epochs.0.later.known.lock().len() <= 3);
        }
        epochs.set_quotas(quotas(2)).unwrap();
        assert!(Arc::ptr_eq(&epochs.clone().current(), &in_use));
        epochs.set_quotas(quotas(1)).unwrap();
        assert!(Arc::ptr_eq(&epochs.clone().current(), &epochs.0));
    }
}
