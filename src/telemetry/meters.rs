//! Counters, gauges and histograms, by the crate `metrics`.

use std::collections::HashMap;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, NoopRecorder, SharedString, with_recorder};
use smallvec::SmallVec;

use super::Outcome;
use super::outcome::OUTCOMES;
use super::table::{self, describe};
use crate::key::Key;
use crate::lock::Mutex;
use crate::policy::Policy;
use crate::priority::{Priority, Rank};
use crate::queue::Turn;
use crate::quota::CONCURRENT;

/// The metrics of one policy.
///
/// All are looked up once, in the recorder of that moment, as that takes longer than a permit.
#[derive(Debug)]
pub(super) struct Meters {
    key_labels: bool,
    policy: SharedString,
    outcomes: [Counter; OUTCOMES.len()],
    units: SmallVec<[UnitMeters; 1]>,
    /// By priority.
    wait: [Histogram; 5],
    waiting: [Gauge; 5],
    shares: Shares,
    pub(super) combined: Counter,
    pub(super) inversions: Counter,
    pub(super) remembered: Counter,
    pub(super) places: Gauge,
    pub(super) reclaimed: Counter,
    pub(super) lost: Counter,
    pub(super) queues: Gauge,
    pub(super) missed: Counter,
    pub(super) guard: Gauge,
    pub(super) pauses: Counter,
    pub(super) quarantines: Counter,
}

/// By the names of shares, and of units. Policies that follow each other under one label have one.
type Shares = Arc<Mutex<HashMap<String, HashMap<&'static str, Counter>>>>;

/// The most shares of a policy that have series of their own, and the name of the others.
const MOST_SHARES: usize = 50;
const OTHER_SHARES: &str = "(others)";

/// The metrics of one unit.
#[derive(Debug)]
pub(super) struct UnitMeters {
    name: &'static str,
    spent: Counter,
    pub(super) refunded: Counter,
    debt: Counter,
}

impl Meters {
    pub(super) fn new(key_labels: bool, policy: &Policy, before: Option<&Self>) -> Self {
        // Requests in progress are counted by `places`.
        let units = policy.units.iter().filter(|name| **name != CONCURRENT);
        let policy = SharedString::from_shared(policy.label.clone());
        let values = slice::from_ref(&policy);
        let and = |label| [policy.clone(), SharedString::const_str(label)];
        with_recorder(|recorder| {
            describe(recorder);
            // With the key as a label, these are looked up for each request.
            let by_policy = if key_labels { &NoopRecorder } else { recorder };
            let unit = |&name: &&'static str| UnitMeters {
                name,
                spent: table::SPENT.counter(by_policy, &and(name)),
                refunded: table::REFUNDED.counter(recorder, &and(name)),
                debt: table::DEBT.counter(recorder, &and(name)),
            };
            Self {
                key_labels,
                outcomes: OUTCOMES.map(|name| table::REQUESTS.counter(by_policy, &and(name))),
                units: units.map(unit).collect(),
                wait: Priority::NAMES.map(|name| table::WAIT.histogram(by_policy, &and(name))),
                waiting: Priority::NAMES.map(|name| table::WAITING.gauge(by_policy, &and(name))),
                shares: before.map_or_else(Shares::default, |it| it.shares.clone()),
                combined: table::COMBINED.counter(recorder, values),
                inversions: table::INVERSIONS.counter(recorder, values),
                remembered: table::REMEMBERED.counter(recorder, values),
                places: table::PLACES.gauge(recorder, values),
                reclaimed: table::RECLAIMED.counter(recorder, values),
                lost: table::LOST.counter(recorder, values),
                queues: table::QUEUES.gauge(recorder, values),
                missed: table::MISSED.counter(recorder, values),
                guard: table::GUARD.gauge(recorder, values),
                pauses: table::PAUSES.counter(recorder, values),
                quarantines: table::QUARANTINES.counter(recorder, values),
                policy: policy.clone(),
            }
        })
    }

    #[inline]
    pub(super) fn ended(
        &self,
        key: &Key,
        outcome: Outcome,
        waited: Duration,
        departs: Option<(&Turn, &Rank)>,
    ) {
        if let Some((turn, rank)) = departs
            && let Some(share) = &rank.share
        {
            self.spent_by(share.name(), turn);
        }
        if self.key_labels {
            return self.ended_of(key, outcome, waited, departs);
        }
        self.outcomes[outcome as usize].increment(1);
        if let Some((turn, rank)) = departs {
            let costs = self.costs(turn);
            costs.for_each(|(unit, cost)| unit.spent.increment(cost));
            self.wait[rank.priority as usize].record(waited);
        }
    }

    /// The costs of a departure. The quotas may have counted other units when it was granted.
    #[inline]
    pub(super) fn costs(&self, turn: &Turn) -> impl Iterator<Item = (&UnitMeters, u64)> {
        let costs = turn.counters.units.iter().zip(turn.units.0);
        costs.filter_map(|(name, cost)| {
            let unit = self.units.iter().find(|it| it.name == *name);
            unit.map(|unit| (unit, cost.into()))
        })
    }

    /// Counts a departure of a share. Behind the first shares, all others have one series.
    #[cold]
    fn spent_by(&self, name: &str, turn: &Turn) {
        let mut shares = self.shares.lock();
        let has_series = shares.len() < MOST_SHARES || shares.contains_key(name);
        let name = if has_series { name } else { OTHER_SHARES };
        let counters = shares.entry(name.to_owned()).or_default();
        for (UnitMeters { name: unit, .. }, cost) in self.costs(turn) {
            let counter = counters.entry(unit).or_insert_with(|| {
                let (name, unit) = (name.to_owned().into(), SharedString::const_str(unit));
                let values = [self.policy.clone(), name, unit];
                with_recorder(|recorder| table::OF_SHARES.counter(recorder, &values))
            });
            counter.increment(cost);
        }
    }

    /// Counts a request that has ended, with the key as a label.
    #[cold]
    fn ended_of(
        &self,
        key: &Key,
        outcome: Outcome,
        waited: Duration,
        departs: Option<(&Turn, &Rank)>,
    ) {
        let and = |label| self.and(label, key);
        with_recorder(|recorder| {
            let requests = table::REQUESTS.counter(recorder, &and(outcome.name()));
            requests.increment(1);
            let Some((turn, rank)) = departs else {
                return;
            };
            for (unit, cost) in self.costs(turn) {
                let spent = table::SPENT.counter(recorder, &and(unit.name));
                spent.increment(cost);
            }
            let level = Priority::NAMES[rank.priority as usize];
            table::WAIT.histogram(recorder, &and(level)).record(waited);
        });
    }

    /// The cost of a departed request was corrected in a unit.
    pub(super) fn corrected(&self, unit: &str, difference: i64) {
        if let Some(unit) = self.units.iter().find(|it| it.name == unit) {
            let counter = match difference {
                ..0 => &unit.refunded,
                _ => &unit.debt,
            };
            counter.increment(difference.unsigned_abs());
        }
    }

    /// So many more requests wait, or fewer.
    pub(super) fn waiting(&self, key: &Key, priority: Priority, more: f64) {
        let level = priority as usize;
        if self.key_labels {
            let values = self.and(Priority::NAMES[level], key);
            with_recorder(|recorder| table::WAITING.gauge(recorder, &values).increment(more));
        } else {
            self.waiting[level].increment(more);
        }
    }

    /// The values of the labels of a series that has the key as a label.
    fn and(&self, label: &'static str, key: &Key) -> [SharedString; 3] {
        let key = SharedString::from_owned(key.as_str().to_owned());
        [self.policy.clone(), SharedString::const_str(label), key]
    }
}

/// The metrics of a limiter's store.
#[derive(Debug)]
pub(super) struct StoreMeters {
    pub(super) outages: Counter,
    pub(super) shards_out: Gauge,
    /// The part of the gauge that is this limiter's, as others share it.
    pub(super) added: AtomicU32,
    /// By operation, then by result.
    pub(super) calls: [[Counter; 3]; OPERATIONS.len()],
    pub(super) latency: [Histogram; OPERATIONS.len()],
    pub(super) requests_per_call: Histogram,
    pub(super) keys_per_call: Histogram,
    pub(super) returned: Counter,
}

/// The names of the operations, in the order of [`Operation`](super::Operation).
const OPERATIONS: [&str; 4] = ["take", "control", "peek", "ping"];

impl StoreMeters {
    pub(super) fn new(limiter: Arc<str>) -> Self {
        let policy = SharedString::from_shared(limiter);
        let values = slice::from_ref(&policy);
        let text = SharedString::const_str;
        with_recorder(|recorder| {
            describe(recorder);
            #[cfg(feature = "redis")]
            drop(table::RECONNECTS.counter(recorder, &[]));
            Self {
                outages: table::OUTAGES.counter(recorder, values),
                shards_out: table::OUT.gauge(recorder, values),
                added: AtomicU32::new(0),
                calls: OPERATIONS.map(|operation| {
                    ["ok", "out", "error"].map(|result| {
                        let values = [policy.clone(), text(operation), text(result)];
                        table::CALLS.counter(recorder, &values)
                    })
                }),
                latency: OPERATIONS.map(|operation| {
                    table::LATENCY.histogram(recorder, &[policy.clone(), text(operation)])
                }),
                requests_per_call: table::REQUESTS_PER_CALL.histogram(recorder, values),
                keys_per_call: table::KEYS_PER_CALL.histogram(recorder, values),
                returned: table::RETURNED.counter(recorder, values),
            }
        })
    }
}

impl Drop for StoreMeters {
    fn drop(&mut self) {
        self.shards_out.decrement(f64::from(*self.added.get_mut()));
    }
}

pub(super) fn reconnected() {
    with_recorder(|recorder| table::RECONNECTS.counter(recorder, &[]).increment(1));
}
