//! What the clones of a limiter share: [`Epochs`], one [`Epoch`] for each policy that it has or had.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::clock::{Offset, StoreClock};
use crate::denial::Denials;
use crate::guard::Guard;
use crate::key::Key;
use crate::line::Lines;
use crate::outage::Circuit;
use crate::pauses::Pauses;
use crate::policy::{Policy, PolicyParts};
use crate::recovery::{Traces, tolerance};
use crate::store::{MemoryStore, Notice, Reserved, Store};
use crate::telemetry::Telemetry;

mod family;
mod handle;
mod make;
mod shared;

use self::handle::Later;
pub(crate) use self::{family::Family, handle::Epochs, shared::Shared};

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

impl Epoch {
    /// Something was said of a key under the quotas of this epoch: whoever waits for it keeps to that,
    /// whatever quotas were set when it came.
    pub(crate) fn hear(&self, key: &Key, notice: Notice) {
        let is_rest = notice.is_quarantine();
        // Who has asked since then did so by what was known here.
        let ends = notice.is_resumption() || is_rest;
        let is_believed = ends && self.pauses.until(key) > notice.now.max(notice.paused);
        let notice = self.news(key, notice);
        let news = self.pauses.note(key, &self.policy, notice);
        // Of a rest, who finds the loss tells.
        if !is_rest {
            self.telemetry.paused(key, news, &notice);
        }
        if notice.is_quarantine() {
            self.telemetry.voided(key);
            // Other quotas have a state of their own, and so a life.
            self.forget_denial(key);
            self.lines.hear(key, notice);
            if is_believed {
                self.lines.ask_anew(key);
            }
            return;
        }
        self.each(|epoch| {
            epoch.forget_denial(key);
            epoch.lines.hear(key, notice);
            if is_believed {
                epoch.lines.ask_anew(key);
            }
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
