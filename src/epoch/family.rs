//! The epochs of one policy as it changes: [`Family`].

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::shared::Shared;
use super::{Epoch, Epochs};
use crate::pauses::Pauses;
use crate::policy::Plan;
use crate::store::MemoryStore;

/// The epochs of one policy as it changes, and what is said of its keys.
pub(crate) struct Family {
    shared: Arc<Shared>,
    /// Of the rule, if it is one's.
    name: Option<Arc<str>>,
    pauses: Arc<Pauses>,
    /// The epochs of what stands in for the store, if anything ever did.
    stand_in: OnceLock<Arc<Self>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Which handles are.
    first: Weak<Epoch>,
    /// All that are in use; those that are not are forgotten with the next one.
    epochs: Vec<Weak<Epoch>>,
    turns: u64,
}

impl Family {
    pub(super) fn new(shared: &Arc<Shared>, name: Option<Arc<str>>) -> Arc<Self> {
        let family = Arc::new(Self {
            shared: shared.clone(),
            name: name.clone(),
            pauses: Arc::default(),
            stand_in: OnceLock::new(),
            known: Mutex::default(),
        });
        shared.add(name, &family);
        family
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(super) fn pauses(&self) -> &Arc<Pauses> {
        &self.pauses
    }

    /// In a store of its own.
    pub(super) fn stand_in(&self) -> &Arc<Self> {
        self.stand_in
            .get_or_init(|| Self::new(&Shared::apart(MemoryStore::new()), None))
    }

    /// All epochs that are in use.
    pub(super) fn epochs(&self) -> Vec<Arc<Epoch>> {
        self.known.lock().epochs()
    }

    /// The handle, and the epoch of this policy: one that is still in use, or else another. No request begins in
    /// it until the handle [goes on](Epochs::go_on_with) with it.
    pub(super) fn enter(self: &Arc<Self>, plan: Plan) -> (Epochs, Arc<Epoch>) {
        let mut known = self.known.lock();
        let epochs = known.epochs();
        let first = known.first.upgrade();
        let same = epochs.iter().find(|it| it.parts == plan.parts);
        let next = same.cloned().unwrap_or_else(|| {
            let current = first.clone().map(|first| Epochs::since(first).current());
            let last = current.as_ref().or(epochs.last());
            let twin = epochs.iter().find(|it| it.policy.id() == plan.policy.id());
            let (twin, last) = (twin.map(Arc::as_ref), last.map(Arc::as_ref));
            let next = Arc::new(Epoch::new(plan, self, twin, last));
            known.add(&next);
            next
        });
        known.take_turn(&next);
        let first = first.unwrap_or_else(|| {
            known.first = Arc::downgrade(&next);
            next.clone()
        });
        (Epochs::since(first), next)
    }

    /// Adds an epoch to which no handle goes on.
    pub(super) fn add(&self, epoch: Epoch) -> Arc<Epoch> {
        let epoch = Arc::new(epoch);
        let mut known = self.known.lock();
        known.add(&epoch);
        known.take_turn(&epoch);
        epoch
    }

    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.known.lock().epochs.len()
    }
}

impl Known {
    fn epochs(&self) -> Vec<Arc<Epoch>> {
        self.epochs.iter().filter_map(Weak::upgrade).collect()
    }

    fn add(&mut self, epoch: &Arc<Epoch>) {
        self.epochs.retain(|epoch| epoch.strong_count() > 0);
        self.epochs.push(Arc::downgrade(epoch));
    }

    /// Requests are about to begin in it.
    fn take_turn(&mut self, epoch: &Epoch) {
        self.turns += 1;
        epoch.turn.store(self.turns, Ordering::Relaxed);
        epoch.guard.set_floor(epoch.policy.guard());
    }
}
