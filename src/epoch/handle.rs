//! What leads requests to the epoch in which they begin: [`Epochs`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Epoch, Family, Shared, shared};
use crate::error::BuildError;
use crate::key::Key;
use crate::outage::Health;
use crate::policy::{Policy, PolicyParts};
use crate::quota::Quota;
use crate::recovery::memory;
use crate::store::{MemoryStore, Store};
use crate::telemetry::{OfStore, Outcome, Settings, Telemetry};

/// The epochs of one policy, as it changes; clones share them.
///
/// The handle is the first epoch, which knows the current one: until the policy changes, a request that
/// begins makes it the handle of its own epoch, and touches nothing else that is shared.
#[derive(Clone)]
pub(crate) struct Epochs {
    first: Arc<Epoch>,
    /// Whether it is of that one alone, whatever comes after it.
    is_alone: bool,
}

/// The epoch after the first in which new requests begin, if they do.
#[derive(Default)]
pub(super) struct Later {
    is_current: AtomicBool,
    current: ArcSwapOption<Epoch>,
}

impl Epochs {
    /// Of a limiter that has no others, with denials of so many keys.
    pub(crate) fn new(
        parts: PolicyParts,
        store: Arc<dyn Store>,
        denials: usize,
        settings: Settings,
    ) -> Result<Self, BuildError> {
        let plan = parts.plan()?;
        let of_store = OfStore::of(&plan.policy);
        let shared = Shared::listening(store, denials, settings, of_store);
        Ok(Family::new(&shared, None).enter(plan).0)
    }

    /// Let everything depart at once, uncounted.
    pub(crate) fn unlimited() -> Self {
        let family = Family::new(&Shared::apart(MemoryStore::new()), None);
        let policy = Arc::new(Policy::unlimited());
        Self::of(family.add(Epoch::apart(policy, &family, false, Telemetry::none())))
    }

    /// All epochs after this one, too.
    pub(super) fn since(first: Arc<Epoch>) -> Self {
        Self {
            first,
            is_alone: false,
        }
    }

    /// This epoch alone.
    pub(crate) fn of(epoch: Arc<Epoch>) -> Self {
        Self {
            first: epoch,
            is_alone: true,
        }
    }

    /// Of this very epoch.
    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.first.policy
    }

    /// The epoch in which a request begins.
    #[inline]
    pub(crate) fn current(self) -> Arc<Epoch> {
        if self.is_alone {
            return self.first;
        }
        self.first.later.current().unwrap_or(self.first)
    }

    /// Begins another epoch, or goes back to one of the same policy that is still in use.
    pub(crate) fn set_quotas(&self, quotas: SmallVec<[Quota; 2]>) -> Result<(), BuildError> {
        let first = &self.first;
        if first.family.name().is_some() {
            return Err(BuildError::said_by_rules());
        }
        let parts = PolicyParts {
            quotas,
            ..first.parts.clone()
        };
        let (_, next) = first.family.enter(parts.plan()?);
        self.go_on_with(next);
        Ok(())
    }

    /// From now on, requests begin in this epoch of the same family.
    pub(crate) fn go_on_with(&self, next: Arc<Epoch>) {
        let first = &self.first;
        let later = &first.later;
        if Arc::ptr_eq(&next, first) {
            later.is_current.store(false, Ordering::Release);
            later.current.store(None);
        } else {
            later.current.store(Some(next));
            later.is_current.store(true, Ordering::Release);
        }
    }

    /// Until when it is to be kept where nobody uses it, as it knows of what the store does not: pauses under other
    /// quotas, and what departed by what stands in.
    pub(crate) fn counts_until(&self) -> Instant {
        let now = Instant::now();
        let epoch = self.clone().current();
        let by_stand_in = epoch.stand_in.as_ref().and_then(|stand_in| {
            let memory = Duration::from_micros(memory(&stand_in.policy));
            now.checked_add(memory)
        });
        let paused = epoch.pauses.over();
        by_stand_in
            .into_iter()
            .chain(paused)
            .fold(now, Instant::max)
    }

    /// A request under the current policy has no key, and so no permit: that is told of.
    pub(crate) fn refuse_without_key(&self) -> Arc<Policy> {
        let epoch = self.clone().current();
        let request = (&Key::from(""), 1);
        let entered = epoch.telemetry.begin(request.0, request.1);
        (epoch.telemetry).ended(&entered, request, Outcome::Invalid, Duration::ZERO);
        epoch.policy.clone()
    }

    /// How the store does.
    pub(crate) fn health(&self) -> Health {
        self.first.health()
    }

    /// How many lines there are in all epochs of the family.
    pub(crate) fn lines(&self) -> usize {
        shared::lines(&self.first.family.epochs())
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
        let epochs =
            Epochs::new(parts, Arc::new(MemoryStore::new()), 0, Settings::default()).unwrap();
        epochs.set_quotas(quotas(2)).unwrap();
        let in_use = epochs.clone().current();
        for limit in 3..100 {
            epochs.set_quotas(quotas(limit)).unwrap();
            // The first, the one in use, the last one and this one.
            assert!(epochs.first.family.known() <= 4);
        }
        epochs.set_quotas(quotas(2)).unwrap();
        assert!(Arc::ptr_eq(&epochs.clone().current(), &in_use));
        epochs.set_quotas(quotas(1)).unwrap();
        assert!(Arc::ptr_eq(&epochs.clone().current(), &epochs.first));
    }
}
