//! What becomes of a key whose state the store has lost: [`Recovery`].

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::algorithm::{Rule, micros};
use crate::key::Key;
use crate::policy::Policy;
use crate::store::{Evidence, Slot};

mod quarantine;

/// What becomes of a key whose state the store has lost.
///
/// A store loses state when it is restarted without persistence or emptied, when it evicts a key, and when a
/// replica takes over that had not received the last writes. Set by
/// [`LimiterBuilder::recovery`](crate::LimiterBuilder::recovery).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// The key starts anew at once. The default.
    ///
    /// What departed before the loss, and what still departs by slots that were handed out before, is not
    /// counted: a window that spans the loss holds up to twice what the quota allows, and while there are
    /// slots from before, as long as the longest wait, others depart beside them.
    #[default]
    Immediate,
    /// The key rests until whatever departed before counts no longer, so that the upstream never sees more
    /// than the quota allows.
    ///
    /// Each process remembers which slots it holds and has used, for as long as they count: some 100 bytes for
    /// each key of the last window. It tells the store with each call. A store that does not know of them has
    /// lost them: then everybody gives back the slots that are held, nothing departs for a window and the
    /// time that it takes until all have been told, up to 3 s or the
    /// [longest wait](crate::LimiterBuilder::max_wait) where that is shorter, and all go on in their order.
    ///
    /// A store that knows of nothing at all writes down when it was born, and lets nothing depart for the
    /// same time from then on: so a process that knows of nothing either, as it has just started, cannot run
    /// ahead. That also holds for a store that has never been used.
    ///
    /// The same is done if the store's clock is set, forward or back, by more than the guard and the buffer,
    /// or if another takes over whose clock differs by that.
    ///
    /// What it costs: the scripts take up to twice as long. What it does not see, so that more may depart:
    ///
    /// - The loss of a single key's state, by eviction or a replica that takes over, until one of those asks
    ///   who know of it. For [`Gcra`](crate::Algorithm::Gcra) and
    ///   [`LeakyBucket`](crate::Algorithm::LeakyBucket) that is only known for an interval after a departure,
    ///   and for [`FixedWindow`](crate::Algorithm::FixedWindow) only of slots to come.
    /// - Slots behind the rest that a process holds which is cut off from the store meanwhile, or is not
    ///   [told](crate::store::Store::is_listening): bound the waits by a `max_wait`.
    /// - Departures that count while somebody [resumes](crate::Limiter::resume) the key.
    ///
    /// [`Limiter::reset`](crate::Limiter::reset) is a loss to all other processes that hold or have used
    /// slots of the key.
    Strict,
}

/// How long it takes at most until all who hold slots have heard that they are not to be used: a
/// subscription that is dead without a word is noticed within three seconds.
const LONGEST_HEARING: Duration = Duration::from_secs(3);

/// How often all keys are put to the test at most.
const SELDOM: Duration = Duration::from_secs(1);

/// The least number of traces for which it looks for those that are over.
const FEW: usize = 64;

/// The slots that were used, and still count: the last of each key.
#[derive(Debug)]
pub(crate) struct Traces {
    known: Mutex<Known>,
    /// The keys whose quarantine is being declared.
    declared: Mutex<Vec<Key>>,
    /// When all keys were last put to the test.
    tested: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Known {
    traces: HashMap<Key, Trace>,
    sweep_at: usize,
}

#[derive(Debug, Clone, Copy)]
struct Trace {
    at: u64,
    record: u64,
    /// The one before, should this be given back.
    before: Option<(u64, u64)>,
    /// From when on it counts no longer, for certain.
    over: Instant,
}

impl Traces {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::new(Known {
                traces: HashMap::new(),
                sweep_at: FEW,
            }),
            declared: Mutex::default(),
            tested: Mutex::default(),
        }
    }

    /// A request departs by this slot.
    pub(crate) fn depart(&self, key: &Key, policy: &Policy, slot: &Slot) {
        let now = Instant::now();
        let late = slot.record.saturating_sub(slot.at);
        // Twice, whatever the clocks do.
        let counts = Duration::from_micros(2 * (memory(policy.rules()) + late));
        let trace = Trace {
            at: slot.at,
            record: slot.record,
            before: None,
            over: now + counts,
        };
        let mut known = self.known.lock();
        if known.traces.len() >= known.sweep_at {
            known.traces.retain(|_, trace| now < trace.over);
            known.sweep_at = FEW.max(known.traces.len() * 2);
        }
        let latest = known.traces.entry(key.clone()).or_insert(trace);
        if latest.record < trace.record {
            let before = Some((latest.at, latest.record));
            *latest = Trace {
                before,
                over: latest.over.max(trace.over),
                ..trace
            };
        }
    }

    /// A slot that was to be used is given back.
    pub(crate) fn give_back(&self, key: &Key, record: u64) {
        let mut known = self.known.lock();
        let Some(latest) = known.traces.get_mut(key) else {
            return;
        };
        if latest.record != record {
            return;
        }
        match latest.before.take() {
            Some((at, record)) => (latest.at, latest.record) = (at, record),
            None => drop(known.traces.remove(key)),
        }
    }

    /// Whether it is a while ago that all were put to the test; if so, they are now.
    pub(crate) fn may_test(&self) -> bool {
        let mut tested = self.tested.lock();
        let may = tested.is_none_or(|at| at.elapsed() >= SELDOM);
        if may {
            *tested = Some(Instant::now());
        }
        may
    }

    /// Nothing is known of a key any more: what was used was given back, or has been forgotten everywhere.
    pub(crate) fn forget(&self, key: &Key) {
        self.known.lock().traces.remove(key);
    }

    /// What a store has to know of a key of which this slot is held.
    pub(crate) fn evidence(
        &self,
        key: &Key,
        policy: &Policy,
        held: Option<(u64, u64)>,
    ) -> Evidence {
        let rules = policy.rules();
        let mut evidence = Evidence::none(rules.len(), micros(rest(policy)));
        let used = self
            .known
            .lock()
            .traces
            .get(key)
            .map(|it| (it.at, it.record));
        for (at, record) in used.into_iter().chain(held) {
            evidence.add(rules, at, record);
        }
        evidence
    }

    /// The keys of which slots were used that still count.
    fn keys(&self) -> Vec<Key> {
        let now = Instant::now();
        let known = self.known.lock();
        let counting = known.traces.iter().filter(|(_, trace)| now < trace.over);
        counting.map(|(key, _)| key.clone()).collect()
    }
}

/// How long a key rests: until all have heard, and what departed until then counts no longer.
fn rest(policy: &Policy) -> Duration {
    let hearing = policy.max_wait().unwrap_or(LONGEST_HEARING);
    let late = policy.guard() + policy.buffer();
    Duration::from_micros(memory(policy.rules())) + hearing.min(LONGEST_HEARING) + 2 * late
}

fn memory(rules: &[Rule]) -> u64 {
    rules.iter().map(Rule::memory).max().unwrap_or(0)
}

/// By how much a clock has to be off until it was set: less may be drift.
pub(crate) fn tolerance(policy: &Policy) -> Duration {
    policy.guard() + policy.buffer()
}

/// The traces of a policy, if it wants any.
pub(crate) fn traces(recovery: Recovery, is_local: bool) -> Option<Arc<Traces>> {
    // What is in this process is lost with it.
    (recovery == Recovery::Strict && !is_local).then(|| Arc::new(Traces::new()))
}
