//! What all policies of a limiter share: [`Shared`].

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::{Epoch, Epochs, Family};
use crate::clock::StoreClock;
use crate::key::Key;
use crate::line::Lines;
use crate::outage::{Circuit, Health};
use crate::policy::Plan;
use crate::recovery::Traces;
use crate::store::{Listen, MemoryStore, Notice, Store};
use crate::telemetry::{OfStore, Settings};

/// What all policies of a limiter share: the store, what is known of it, and the way to all who wait.
pub(crate) struct Shared {
    store: Arc<dyn Store>,
    /// The same store, if it is an embedded one.
    embedded: Option<MemoryStore>,
    /// How many keys are known to be over their limit, under each policy.
    denials: usize,
    clock: Arc<StoreClock>,
    circuit: Arc<Circuit>,
    settings: Settings,
    /// For those whose recovery is strict. What is in this process is lost with it, and needs none.
    traces: Option<Arc<Traces>>,
    /// Those that are in use, by the names of their rules.
    families: Mutex<HashMap<Option<Arc<str>>, Weak<Family>>>,
}

impl Shared {
    /// It hears what others say of keys, for as long as anybody uses it.
    pub(crate) fn listening(
        store: Arc<dyn Store>,
        denials: usize,
        settings: Settings,
        of_store: OfStore,
    ) -> Arc<Self> {
        let is_local = store.is_local();
        let shared = Arc::new(Self {
            embedded: store.as_embedded().cloned(),
            store,
            denials: if is_local { 0 } else { denials },
            clock: Arc::new(StoreClock::new()),
            circuit: Arc::new(Circuit::new(of_store)),
            settings,
            traces: (!is_local).then(|| Arc::new(Traces::new())),
            families: Mutex::default(),
        });
        let listener: Weak<Self> = Arc::downgrade(&shared);
        shared.store.listen(listener);
        shared
    }

    /// Of a store that nobody else knows.
    pub(super) fn apart(store: MemoryStore) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::new(store.clone()),
            embedded: Some(store),
            denials: 0,
            clock: Arc::new(StoreClock::new()),
            circuit: Arc::new(Circuit::new(OfStore::none())),
            settings: Settings::default(),
            traces: None,
            families: Mutex::default(),
        })
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(super) fn embedded(&self) -> Option<&MemoryStore> {
        self.embedded.as_ref()
    }

    pub(super) fn denials(&self) -> usize {
        self.denials
    }

    pub(super) fn clock(&self) -> &Arc<StoreClock> {
        &self.clock
    }

    pub(super) fn circuit(&self) -> &Arc<Circuit> {
        &self.circuit
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings
    }

    pub(crate) fn traces(&self) -> Option<&Arc<Traces>> {
        self.traces.as_ref()
    }

    /// The handle of a rule's epochs, and that of this policy, as [`Family::enter`] has it.
    pub(crate) fn enter(self: &Arc<Self>, name: &Arc<str>, plan: Plan) -> (Epochs, Arc<Epoch>) {
        let name = Some(name.clone());
        let known = self.families.lock().get(&name).and_then(Weak::upgrade);
        let family = known.unwrap_or_else(|| Family::new(self, name));
        family.enter(plan)
    }

    pub(super) fn add(&self, name: Option<Arc<str>>, family: &Arc<Family>) {
        let mut families = self.families.lock();
        if families.len() == families.capacity() {
            families.retain(|_, family| family.strong_count() > 0);
        }
        families.insert(name, Arc::downgrade(family));
    }

    fn families(&self, are_meant: impl Fn(Option<&str>) -> bool) -> Vec<Arc<Family>> {
        let families = self.families.lock();
        let meant = families
            .iter()
            .filter(|(name, _)| are_meant(name.as_deref()));
        meant.filter_map(|(_, family)| family.upgrade()).collect()
    }

    /// All epochs that are in use.
    pub(crate) fn epochs(&self) -> Vec<Arc<Epoch>> {
        let families = self.families(|_| true);
        families.iter().flat_map(|family| family.epochs()).collect()
    }

    /// One of each policy whose recovery is strict.
    pub(crate) fn strict(&self) -> Vec<Arc<Epoch>> {
        let mut epochs = self.epochs();
        epochs.retain(|epoch| epoch.traces.is_some());
        epochs.sort_unstable_by(|one, other| one.policy.id().cmp(other.policy.id()));
        epochs.dedup_by(|one, other| one.policy.id() == other.policy.id());
        epochs
    }

    /// How the store does; sees to it that the parts that are out are asked for signs of life.
    pub(crate) fn health(&self) -> Health {
        match self.epochs().first() {
            Some(epoch) => epoch.health(),
            None => self.circuit.health(),
        }
    }

    /// How many lines there are.
    pub(crate) fn lines(&self) -> usize {
        lines(&self.epochs())
    }

    /// Something may have been said or lost under these policies of which nobody was told.
    pub(super) fn put_to_the_test(self: &Arc<Self>, are_meant: impl Fn(&Epoch) -> bool) {
        let epochs = self.epochs();
        let meant = epochs.iter().filter(|epoch| are_meant(epoch));
        meant.for_each(|epoch| epoch.lines.miss());
        self.test_all();
    }
}

/// Listens for all.
impl Listen for Shared {
    fn hear(&self, policy: &str, key: &Key, notice: Notice) {
        let is_of = |name: &str| {
            let quotas = policy.strip_prefix(name);
            quotas.is_some_and(|quotas| quotas.starts_with(':'))
        };
        for family in self.families(|name| name.is_none_or(is_of)) {
            let epochs = family.epochs();
            let meant = epochs.iter().filter(|epoch| epoch.policy.id() == policy);
            // Those of one id have the same lines.
            if let Some(epoch) = meant.max_by_key(|epoch| epoch.traces.is_some()) {
                epoch.hear(key, notice);
            }
        }
    }

    fn gap(&self) {
        let epochs = self.epochs();
        for epoch in &epochs {
            if let Some(denials) = &epoch.denials {
                denials.forget_all();
            }
        }
        if let Some(epoch) = epochs.first() {
            epoch.shared().put_to_the_test(|_| true);
        }
    }

    fn is_waiting(&self) -> bool {
        self.lines() > 0
    }
}

/// One for each set of lines.
pub(super) fn distinct(epochs: &[Arc<Epoch>]) -> impl Iterator<Item = &Arc<Epoch>> {
    let is_first = |(place, epoch): &(usize, &Arc<Epoch>)| {
        let before = &epochs[..*place];
        !before.iter().any(|it| Arc::ptr_eq(&it.lines, &epoch.lines))
    };
    let places = epochs.iter().enumerate();
    places.filter(is_first).map(|(_, epoch)| epoch)
}

/// How many lines there are in these, and in what stands in for them.
pub(super) fn lines(epochs: &[Arc<Epoch>]) -> usize {
    let stand_ins = epochs.iter().filter_map(|epoch| epoch.stand_in.as_ref());
    let mut all: Vec<&Arc<Lines>> = epochs.iter().chain(stand_ins).map(|it| &it.lines).collect();
    all.sort_unstable_by_key(|lines| Arc::as_ptr(lines));
    all.dedup_by_key(|lines| Arc::as_ptr(lines));
    all.iter().map(|lines| lines.len()).sum()
}
