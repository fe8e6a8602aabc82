//! Counters, gauges and histograms, by the crate `metrics`.

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, NoopRecorder, Recorder, SharedString, with_recorder};

use super::calls::Calls;
use super::table::{
    FORFEITS, GUARD, LINES, OUT, OUTAGES, PAUSES, QUARANTINES, REMEMBERED, REQUESTS, SPENT, WAIT,
    WAITING, describe,
};
#[cfg(feature = "redis")]
use super::table::{KEYS_PER_CALL, RECONNECTS};
use super::{Forfeits, Outcome, Turn, label};
use crate::key::Key;
use crate::pauses::News;
use crate::policy::Policy;
use crate::store::Store;

/// What a user has set.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settings {
    pub(crate) key_labels: bool,
}

/// What one epoch counts.
///
/// All are looked up once, as that takes longer than to find a slot, and belong to the recorder of that moment.
#[derive(Clone)]
pub(super) struct Meters {
    all: Arc<Handles>,
    /// Whether it serves requests while the store is out.
    stands_in: bool,
    granted: Counter,
}

struct Handles {
    settings: Settings,
    policy: SharedString,
    outcomes: [Counter; Outcome::ALL.len()],
    stood_in: Counter,
    spent: Counter,
    wait: Histogram,
    remembered: Counter,
    waiting: Gauge,
    lines: Gauge,
    forfeits: Counter,
    guard: Gauge,
    pauses: Counter,
    quarantines: Counter,
    calls: Arc<Calls>,
}

/// What is counted of a store, under whatever policies.
pub(super) struct OfStore {
    outages: Counter,
    out: Share,
}

/// What somebody has added to a gauge that others share, and takes away in the end.
struct Share {
    gauge: Gauge,
    added: AtomicU32,
}

impl Meters {
    pub(super) fn new(settings: Settings, policy: &Policy) -> Self {
        let policy = SharedString::from_shared(label(policy));
        let handles = with_recorder(|recorder| {
            describe(recorder);
            Handles::new(settings, policy, recorder)
        });
        Self {
            stands_in: false,
            granted: handles.outcomes[Outcome::Granted.place()].clone(),
            all: Arc::new(handles),
        }
    }

    pub(super) fn stand_in(&self) -> Self {
        Self {
            stands_in: true,
            granted: self.all.stood_in.clone(),
            all: self.all.clone(),
        }
    }

    /// Counts nothing.
    pub(super) fn none() -> Self {
        let policy = SharedString::const_str("");
        let handles = Handles::new(Settings::default(), policy, &NoopRecorder);
        Self {
            stands_in: false,
            granted: Counter::noop(),
            all: Arc::new(handles),
        }
    }

    pub(super) fn watch(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        Calls::watch(&self.all.calls, store)
    }

    #[inline]
    pub(super) fn ended(&self, key: &Key, cost: u32, outcome: Outcome, waited: Duration) {
        if self.all.settings.key_labels {
            self.ended_of(key, cost, outcome, waited);
        } else if outcome == Outcome::Granted {
            self.granted.increment(1);
            self.all.spent.increment(cost.into());
            self.all.wait.record(waited);
        } else {
            self.all.outcomes[outcome.place()].increment(1);
        }
    }

    /// The same, with the key for a label.
    #[cold]
    fn ended_of(&self, key: &Key, cost: u32, outcome: Outcome, waited: Duration) {
        let name = SharedString::const_str(outcome.name(self.stands_in));
        let [policy, key] = self.of_key(key);
        with_recorder(|recorder| {
            let requests = [policy.clone(), name, key.clone()];
            REQUESTS.counter(recorder, &requests).increment(1);
            if outcome == Outcome::Granted {
                let values = [policy, key];
                SPENT.counter(recorder, &values).increment(cost.into());
                WAIT.histogram(recorder, &values).record(waited);
            }
        });
    }

    pub(super) fn remembered(&self) {
        self.all.remembered.increment(1);
    }

    /// So many more wait, or fewer.
    pub(super) fn waiting(&self, key: &Key, more: f64) {
        if self.all.settings.key_labels {
            let values = self.of_key(key);
            with_recorder(|recorder| WAITING.gauge(recorder, &values).increment(more));
        } else {
            self.all.waiting.increment(more);
        }
    }

    /// There are so many more lines, or fewer.
    pub(super) fn lines(&self, more: f64) {
        self.all.lines.increment(more);
    }

    pub(super) fn forfeited(&self, forfeits: Forfeits, guard: Duration) {
        self.all.forfeits.increment(forfeits.count);
        self.guard(guard);
    }

    pub(super) fn guard(&self, guard: Duration) {
        if !self.stands_in {
            self.all.guard.set(guard);
        }
    }

    pub(super) fn paused(&self, news: News) {
        match news {
            News::Begun | News::Extended if !self.stands_in => self.all.pauses.increment(1),
            _ => {}
        }
    }

    pub(super) fn quarantined(&self, keys: usize) {
        self.all.quarantines.increment(keys as u64);
    }

    fn of_key(&self, key: &Key) -> [SharedString; 2] {
        let key = SharedString::from_owned(key.as_str().to_owned());
        [self.all.policy.clone(), key]
    }
}

impl Handles {
    fn new(settings: Settings, policy: SharedString, recorder: &dyn Recorder) -> Self {
        let values = slice::from_ref(&policy);
        // With a label for keys, those of requests are looked up when there is a key.
        let are_known = !settings.key_labels;
        let outcome = |outcome: Outcome, stands_in| {
            let name = SharedString::const_str(outcome.name(stands_in));
            let requests = || REQUESTS.counter(recorder, &[policy.clone(), name]);
            are_known.then(requests).unwrap_or_else(Counter::noop)
        };
        let spent = || SPENT.counter(recorder, values);
        let wait = || WAIT.histogram(recorder, values);
        let waiting = || WAITING.gauge(recorder, values);
        Self {
            settings,
            outcomes: Outcome::ALL.map(|it| outcome(it, false)),
            stood_in: outcome(Outcome::Granted, true),
            spent: are_known.then(spent).unwrap_or_else(Counter::noop),
            wait: are_known.then(wait).unwrap_or_else(Histogram::noop),
            waiting: are_known.then(waiting).unwrap_or_else(Gauge::noop),
            remembered: REMEMBERED.counter(recorder, values),
            lines: LINES.gauge(recorder, values),
            forfeits: FORFEITS.counter(recorder, values),
            guard: GUARD.gauge(recorder, values),
            pauses: PAUSES.counter(recorder, values),
            quarantines: QUARANTINES.counter(recorder, values),
            calls: Arc::new(Calls::new(&policy, recorder)),
            policy,
        }
    }
}

impl OfStore {
    pub(super) fn new(policy: Arc<str>) -> Self {
        with_recorder(|recorder| {
            describe(recorder);
            let values = [SharedString::from_shared(policy)];
            Self {
                outages: OUTAGES.counter(recorder, &values),
                out: Share::of(OUT.gauge(recorder, &values)),
            }
        })
    }

    /// Counts nothing.
    pub(super) fn none() -> Self {
        Self {
            outages: Counter::noop(),
            out: Share::of(Gauge::noop()),
        }
    }

    pub(super) fn turned(&self, turn: &Turn<'_>) {
        match turn {
            Turn::Out { .. } => {
                self.outages.increment(1);
                self.out.add();
            }
            Turn::AnotherOut { .. } | Turn::OutAgain { .. } => self.out.add(),
            Turn::Alive { .. } => self.out.subtract(),
            Turn::AnotherBack { .. } | Turn::Back { .. } => {}
        }
    }
}

impl Share {
    fn of(gauge: Gauge) -> Self {
        let added = AtomicU32::new(0);
        Self { gauge, added }
    }

    fn add(&self) {
        self.added.fetch_add(1, Ordering::Relaxed);
        self.gauge.increment(1.0);
    }

    fn subtract(&self) {
        self.added.fetch_sub(1, Ordering::Relaxed);
        self.gauge.decrement(1.0);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.gauge.decrement(f64::from(*self.added.get_mut()));
    }
}

impl fmt::Debug for OfStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfStore").finish_non_exhaustive()
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

/// What is counted of connections to Redis, whoever uses them.
#[cfg(feature = "redis")]
#[derive(Debug)]
pub(super) struct OfRedis {
    keys_per_call: Histogram,
    reconnects: Counter,
}

#[cfg(feature = "redis")]
impl OfRedis {
    pub(super) fn new() -> Self {
        with_recorder(|recorder| {
            describe(recorder);
            Self {
                keys_per_call: KEYS_PER_CALL.histogram(recorder, &[]),
                reconnects: RECONNECTS.counter(recorder, &[]),
            }
        })
    }

    pub(super) fn called_for(&self, keys: usize) {
        self.keys_per_call.record(keys as f64);
    }

    pub(super) fn reconnected(&self) {
        self.reconnects.increment(1);
    }
}
