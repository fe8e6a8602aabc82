//! What the clones of a limiter share: [`Epochs`], one [`Epoch`] for each set of quotas.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::clock::{Offset, StoreClock};
use crate::denial::Denials;
use crate::error::BuildError;
use crate::guard::Guard;
use crate::key::Key;
use crate::line::Lines;
use crate::outage::{Circuit, Health, Outage};
use crate::pauses::Pauses;
use crate::policy::{Policy, PolicyParts};
use crate::quota::Quota;
use crate::recovery::{Traces, tolerance, traces};
use crate::store::{Listen, MemoryStore, Notice, Reserved, Store};
use crate::telemetry::{Settings, Telemetry};

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
    pub(crate) circuit: Arc<Circuit>,
    /// What the store has to know, if recovery is strict; of all epochs.
    pub(crate) traces: Option<Arc<Traces>>,
    /// Whether departures count.
    pub(crate) is_counted: bool,
    pub(crate) telemetry: Telemetry,
    /// Serves requests while the store is out, if anything does.
    pub(crate) stand_in: Option<Arc<Self>>,
    /// The first epoch, which may be this. What stands in has none.
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
        settings: Settings,
    ) -> Result<Self, BuildError> {
        let policy = parts.clone().build()?;
        let denials = if store.is_local() { 0 } else { denials };
        let lines = Lines::default();
        let telemetry = Telemetry::new(settings, &policy);
        let stand_in = Epoch::make_stand_in(&parts, &lines, None, &telemetry)?;
        let first = Arc::new_cyclic(|this| Epoch {
            denials: Denials::new(denials),
            embedded: store.as_embedded().cloned(),
            traces: traces(parts.recovery, store.is_local()),
            store: telemetry.watch(&store),
            circuit: Arc::new(Circuit::new(telemetry.clone())),
            is_counted: true,
            telemetry,
            stand_in,
            lines,
            guard: Arc::new(Guard::new(policy.guard())),
            clock: Arc::new(StoreClock::new()),
            pauses: Arc::default(),
            first: this.clone(),
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
        let policy = parts.clone().build()?;
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
        let next = match same {
            Some(same) => same,
            None => {
                let current = self.clone().current();
                let next = current.succeeded_by(policy, &parts, Arc::downgrade(first))?;
                let next = Arc::new(next);
                known.push(Arc::downgrade(&next));
                next
            }
        };
        later.current.store(Some(next));
        later.is_current.store(true, Ordering::Release);
        Ok(())
    }

    /// How the store does.
    pub(crate) fn health(&self) -> Health {
        self.0.health()
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
        let notice = self.news(key, notice);
        let news = self.pauses.note(key, &self.policy, notice);
        self.telemetry.paused(key, news, &notice);
        if notice.is_quarantine() {
            self.telemetry.voided(key);
            // Other quotas have a state of their own, and so a life.
            self.forget_denial(key);
            return self.lines.hear(key, notice);
        }
        self.each(|epoch| {
            epoch.forget_denial(key);
            epoch.lines.hear(key, notice);
        });
    }

    /// The same, but for those who hold slots.
    pub(crate) fn note(&self, key: &Key, notice: Notice) {
        let news = self.pauses.note(key, &self.policy, notice);
        self.telemetry.paused(key, news, &notice);
        self.forget_denial(key);
    }

    /// Less what is known already.
    fn news(&self, key: &Key, notice: Notice) -> Notice {
        let is_news = |traces: &Arc<Traces>| traces.hear(key, &self.policy, notice);
        if notice.is_quarantine() && !self.traces.as_ref().is_none_or(is_news) {
            return Notice { until: 0, ..notice };
        }
        notice
    }

    /// What an answer has shown of the store's clock, and whether that was set. If it is another's, that store
    /// is put to the test.
    pub(crate) fn read_clock(
        self: &Arc<Self>,
        sent: Instant,
        received: Instant,
        answer: &Reserved,
    ) -> (Offset, bool) {
        let read = (self.clock).observe(sent, received, answer.now, answer.clock);
        if read.is_other && self.traces.is_some() {
            self.put_to_the_test();
        }
        let is_set = read.gap > tolerance(&self.policy);
        if is_set {
            self.telemetry.clock_set(read.ahead);
        }
        self.telemetry.measured(&self.guard);
        (read.offset, is_set)
    }

    /// A slot of this key is given back, or all are: what was known of it holds no longer.
    pub(crate) fn forget_denial(&self, key: &Key) {
        if let Some(denials) = &self.denials {
            denials.forget(key);
        }
    }

    /// What serves requests of this cost while the store is out, if anything does.
    pub(crate) fn stand_in_for(&self, cost: u32) -> Option<Arc<Self>> {
        let stand_in = self.stand_in.as_ref();
        stand_in
            .filter(|it| cost <= it.policy.largest_cost())
            .cloned()
    }

    /// What stands in for quotas of these parts, beside these lines; in the store of what did before.
    fn make_stand_in(
        parts: &PolicyParts,
        lines: &Lines,
        store: Option<MemoryStore>,
        telemetry: &Telemetry,
    ) -> Result<Option<Arc<Self>>, BuildError> {
        let outage = parts.outage;
        let Some(parts) = outage.stand_in(parts)? else {
            return Ok(None);
        };
        let policy = parts.build();
        let policy = policy.map_err(|error| BuildError::new("outage", error.to_string()))?;
        let store = store.unwrap_or_default();
        let telemetry = telemetry.stand_in();
        Ok(Some(Arc::new(Self {
            denials: None,
            embedded: Some(store.clone()),
            store: Arc::new(store),
            lines: lines.beside(),
            guard: Arc::new(Guard::new(policy.guard())),
            clock: Arc::new(StoreClock::new()),
            pauses: Arc::default(),
            circuit: Arc::new(Circuit::new(telemetry.clone())),
            traces: None,
            is_counted: outage != Outage::Allow,
            telemetry,
            stand_in: None,
            first: Weak::new(),
            policy: Arc::new(policy),
            later: Later::default(),
        })))
    }

    /// The store stays, and what was learnt about it.
    fn succeeded_by(
        &self,
        policy: Policy,
        parts: &PolicyParts,
        first: Weak<Self>,
    ) -> Result<Self, BuildError> {
        let lines = Lines::default();
        let embedded = self.stand_in.as_ref().and_then(|it| it.embedded.clone());
        let telemetry = self.telemetry.successor(&policy);
        Ok(Self {
            store: telemetry.watch(&self.store),
            embedded: self.embedded.clone(),
            denials: self.denials.as_ref().and_then(Denials::successor),
            circuit: self.circuit.clone(),
            traces: self.traces.clone(),
            is_counted: true,
            stand_in: Self::make_stand_in(parts, &lines, embedded, &telemetry)?,
            telemetry,
            lines,
            guard: Arc::new(self.guard.with_floor(policy.guard())),
            clock: self.clock.clone(),
            pauses: self.pauses.clone(),
            first,
            policy: Arc::new(policy),
            later: Later::default(),
        })
    }

    /// Whether anybody waits, in whatever epoch.
    pub(crate) fn is_anybody_waiting(&self) -> bool {
        let is_anybody = Cell::new(false);
        self.each(|epoch| is_anybody.set(is_anybody.get() || epoch.own_lines() > 0));
        is_anybody.get()
    }

    /// If the store is back, those who wait for this key where something stands in go back to its line.
    pub(crate) fn send_back(&self, key: &Key) {
        if let Some(stand_in) = &self.stand_in
            && self.known_outage(key).is_none()
        {
            stand_in.lines.evict_from(key);
        }
    }

    /// The store may be back, or a part of it: all who wait for it look. Those for whom it is go back to its lines
    /// from those of what stood in.
    pub(crate) fn go_on(&self) {
        self.lines.look_again();
        if let Some(stand_in) = &self.stand_in {
            let is_back = |key: &Key| self.known_outage(key).is_none();
            stand_in.lines.evict(is_back);
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
        for epoch in self.everyone() {
            if let Some(denials) = &epoch.denials {
                denials.forget_all();
            }
        }
        if let Some(first) = self.first.upgrade() {
            first.put_to_the_test();
        }
    }

    fn is_waiting(&self) -> bool {
        self.all_lines() > 0
    }
}

impl Epoch {
    /// How many lines there are in all epochs of the limiter, where this is the first.
    fn all_lines(&self) -> usize {
        let later: usize = self.family().iter().map(|epoch| epoch.own_lines()).sum();
        self.own_lines() + later
    }

    /// How many lines there are in this one, and in what stands in for it.
    fn own_lines(&self) -> usize {
        let stand_in = self.stand_in.as_ref().map_or(0, |it| it.lines.len());
        self.lines.len() + stand_in
    }

    /// The epochs after the first that are in use.
    fn family(&self) -> Vec<Arc<Self>> {
        let first = self.first.upgrade();
        let later = &first.as_deref().unwrap_or(self).later;
        let known = later.known.lock();
        known.iter().filter_map(Weak::upgrade).collect()
    }

    /// The first epoch of the limiter, which lives as long as that; or this one if it is what stands in.
    pub(crate) fn first(self: &Arc<Self>) -> Weak<Self> {
        match self.first.upgrade() {
            Some(first) => Arc::downgrade(&first),
            None => Arc::downgrade(self),
        }
    }

    /// All that are in use, for who is one of those that have a first.
    pub(crate) fn everyone(&self) -> Vec<Arc<Self>> {
        let mut all = self.family();
        all.extend(self.first.upgrade());
        all
    }

    /// Something may have been said or lost that nobody was told of.
    fn put_to_the_test(self: &Arc<Self>) {
        self.everyone().iter().for_each(|epoch| epoch.lines.miss());
        self.test_all();
    }

    /// All others that are in use.
    pub(crate) fn others(&self) -> Vec<Arc<Self>> {
        let mut all = self.everyone();
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
        let epochs =
            Epochs::new(parts, Arc::new(MemoryStore::new()), 0, Settings::default()).unwrap();
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
