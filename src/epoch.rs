//! What the clones of a limiter share: [`Epochs`], one [`Epoch`] for each policy that it has or had.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
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
use crate::policy::{Plan, Policy, PolicyParts};
use crate::quota::Quota;
use crate::recovery::{Recovery, Traces, tolerance};
use crate::store::{MemoryStore, Notice, Reserved, Store};
use crate::telemetry::{OfStore, Settings, Telemetry};

mod family;
mod shared;

pub(crate) use self::family::Family;
pub(crate) use self::shared::Shared;

/// The epochs of one policy, as it changes; clones share them.
///
/// The handle is the first epoch, which knows the current one: until the policy changes, a request that
/// begins makes it the handle of its own epoch, and touches nothing else that is shared. An epoch that is not
/// the first is a handle, too, of itself alone.
#[derive(Clone)]
pub(crate) struct Epochs(Arc<Epoch>);

/// A policy, and all that serves the requests under it.
///
/// A request stays in the epoch in which it began, and whatever it holds goes back there. Epochs whose policies
/// have the same id, and so the same state in the store, differ in bounds alone: they share their lines, in which
/// nobody overtakes anybody.
pub(crate) struct Epoch {
    pub(crate) policy: Arc<Policy>,
    pub(crate) store: Arc<dyn Store>,
    /// The same store, if it is an embedded one.
    pub(crate) embedded: Option<MemoryStore>,
    /// What is known without asking the store, if that would take a call.
    pub(crate) denials: Option<Arc<Denials>>,
    pub(crate) lines: Arc<Lines>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) clock: Arc<StoreClock>,
    /// Of all epochs of the family.
    pub(crate) pauses: Arc<Pauses>,
    pub(crate) circuit: Arc<Circuit>,
    /// What the store has to know, if recovery is strict; of all epochs of the limiter.
    pub(crate) traces: Option<Arc<Traces>>,
    /// Whether departures count.
    pub(crate) is_counted: bool,
    pub(crate) telemetry: Telemetry,
    /// Serves requests while the store is out, if anything does.
    pub(crate) stand_in: Option<Arc<Self>>,
    family: Arc<Family>,
    /// Which one it is of those that requests of the family began in; anew if they do so again.
    turn: AtomicU64,
    /// What the policy is made of.
    parts: PolicyParts,
    /// Of the first one of the family.
    later: Later,
}

/// The epoch after the first in which new requests begin, if they do.
#[derive(Default)]
struct Later {
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
        Self(family.add(Epoch::apart(policy, &family, false, Telemetry::none())))
    }

    /// This epoch alone, unless it is the first.
    pub(crate) fn of(epoch: Arc<Epoch>) -> Self {
        Self(epoch)
    }

    /// Of this very epoch.
    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.0.policy
    }

    /// The epoch in which a request begins.
    #[inline]
    pub(crate) fn current(self) -> Arc<Epoch> {
        self.0.later.current().unwrap_or(self.0)
    }

    /// Begins another epoch, or goes back to one of the same policy that is still in use.
    pub(crate) fn set_quotas(&self, quotas: SmallVec<[Quota; 2]>) -> Result<(), BuildError> {
        let Self(first) = self;
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
        let Self(first) = self;
        let later = &first.later;
        if Arc::ptr_eq(&next, first) {
            later.is_current.store(false, Ordering::Release);
            later.current.store(None);
        } else {
            later.current.store(Some(next));
            later.is_current.store(true, Ordering::Release);
        }
    }

    /// How the store does.
    pub(crate) fn health(&self) -> Health {
        self.0.health()
    }

    /// How many lines there are in all epochs of the family.
    pub(crate) fn lines(&self) -> usize {
        shared::lines(&self.0.family.epochs())
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

    /// What an answer has shown of the store's clock, and whether that was set, as far as this policy cares.
    /// If it was, or is another's, all is put to the test that was handed out by it, under each policy.
    pub(crate) fn read_clock(
        self: &Arc<Self>,
        sent: Instant,
        received: Instant,
        answer: &Reserved,
    ) -> (Offset, bool) {
        let read = (self.clock).observe(sent, received, answer.now, answer.clock);
        let is_set = |epoch: &Self| read.gap > tolerance(&epoch.policy);
        let shared = self.shared();
        if read.is_other {
            shared.put_to_the_test(|epoch| epoch.traces.is_some());
        }
        if !read.gap.is_zero() {
            // Before anything else, lest a life is declared to be lost that has begun since.
            let (server, clock) = (answer.clock.server, read.offset.clock());
            let epochs = shared.epochs().into_iter();
            epochs
                .filter(|epoch| is_set(epoch))
                .for_each(|epoch| epoch.quarantine_all(server, clock));
        }
        let is_set = is_set(self);
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

    /// One of this family: it has the lines of its twin, of which the policy has the same id, and begins with what
    /// the last one has learnt about the store.
    fn new(plan: Plan, family: &Arc<Family>, twin: Option<&Self>, last: Option<&Self>) -> Self {
        let settings = family.shared().settings();
        let telemetry = match (twin, last) {
            (Some(twin), _) => twin.telemetry.clone(),
            (None, Some(last)) => last.telemetry.successor(settings, &plan.policy),
            (None, None) => Telemetry::new(settings, &plan.policy),
        };
        Self::with(plan, family, twin, last, telemetry)
    }

    fn with(
        plan: Plan,
        family: &Arc<Family>,
        twin: Option<&Self>,
        last: Option<&Self>,
        telemetry: Telemetry,
    ) -> Self {
        let Plan {
            parts,
            policy,
            stand_in: standing_in,
        } = plan;
        let shared = family.shared();
        let lines = twin.map_or_else(Arc::default, |twin| twin.lines.clone());
        let denials = || Denials::new(shared.denials()).map(Arc::new);
        let guard = match (twin, last) {
            (Some(twin), _) => twin.guard.clone(),
            (None, Some(last)) => Arc::new(last.guard.with_floor(policy.guard())),
            (None, None) => Arc::new(Guard::new(policy.guard())),
        };
        let before = [twin, last].into_iter().flatten();
        let before = before.filter_map(|it| it.stand_in.as_deref()).next();
        let is_counted = parts.outage != Outage::Allow;
        let stand_in =
            |policy| Self::stand_in(policy, is_counted, &lines, before, telemetry.stand_in());
        let is_strict = parts.recovery == Recovery::Strict;
        Self {
            store: telemetry.watch(shared.store()),
            embedded: shared.embedded().cloned(),
            denials: twin.map_or_else(denials, |twin| twin.denials.clone()),
            circuit: shared.circuit().clone(),
            traces: shared.traces().filter(|_| is_strict).cloned(),
            is_counted: true,
            stand_in: standing_in.map(stand_in),
            telemetry,
            guard,
            clock: shared.clock().clone(),
            pauses: family.pauses().clone(),
            family: family.clone(),
            turn: AtomicU64::new(0),
            lines,
            policy,
            parts,
            later: Later::default(),
        }
    }

    /// What stands in beside these lines, after what did before, if anything: in the same store.
    fn stand_in(
        policy: Arc<Policy>,
        is_counted: bool,
        lines: &Lines,
        before: Option<&Self>,
        telemetry: Telemetry,
    ) -> Arc<Self> {
        let family = match before {
            Some(before) => before.family.clone(),
            None => Family::new(&Shared::apart(MemoryStore::new()), None),
        };
        let epoch = Self::apart(policy, &family, is_counted, telemetry);
        let is_twin =
            |it: &&Self| it.policy.id() == epoch.policy.id() && it.lines.are_beside(lines);
        family.add(match before.filter(is_twin) {
            Some(twin) => Self {
                lines: twin.lines.clone(),
                guard: twin.guard.clone(),
                ..epoch
            },
            None => Self {
                lines: Arc::new(lines.beside()),
                ..epoch
            },
        })
    }

    /// One in an embedded store of its own.
    fn apart(
        policy: Arc<Policy>,
        family: &Arc<Family>,
        is_counted: bool,
        telemetry: Telemetry,
    ) -> Self {
        let plan = Plan {
            parts: PolicyParts::default(),
            policy,
            stand_in: None,
        };
        Self {
            is_counted,
            // Whose calls are of no interest.
            store: family.shared().store().clone(),
            ..Self::with(plan, family, None, None, telemetry)
        }
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

impl Epoch {
    /// What all epochs of the limiter share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.family.shared()
    }

    pub(crate) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    /// All epochs of the family that are in use, one for each set of lines.
    pub(crate) fn each(&self, tell: impl Fn(&Self)) {
        shared::distinct(&self.family.epochs()).for_each(|epoch| tell(epoch));
    }

    /// The same, but for those who share the lines of this one.
    pub(crate) fn others(&self) -> Vec<Arc<Self>> {
        let all = self.family.epochs();
        let others = shared::distinct(&all).filter(|it| !Arc::ptr_eq(&it.lines, &self.lines));
        others.cloned().collect()
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
            // The first, the one in use, the last one and this one.
            assert!(epochs.0.family.known() <= 4);
        }
        epochs.set_quotas(quotas(2)).unwrap();
        assert!(Arc::ptr_eq(&epochs.clone().current(), &in_use));
        epochs.set_quotas(quotas(1)).unwrap();
        assert!(Arc::ptr_eq(&epochs.clone().current(), &epochs.0));
    }
}
