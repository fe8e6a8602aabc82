//! Counters, gauges and histograms, by the crate `metrics`.

use std::collections::HashMap;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, NoopRecorder, SharedString, with_recorder};
use smallvec::SmallVec;

use super::outcome::OUTCOMES;
#[cfg(feature = "redis")]
use super::table::RECONNECTS;
use super::table::{
    CALLS, COMBINED, DEBT, GUARD, INVERSIONS, KEYS_PER_CALL, LATENCY, LOST, MISSED, OF_SHARES, OUT,
    OUTAGES, PAUSES, PLACES, QUARANTINES, QUEUES, RECLAIMED, REFUNDED, REMEMBERED, REQUESTS,
    REQUESTS_PER_CALL, RETURNED, SPENT, WAIT, WAITING, describe,
};
use super::{Operation, Outcome, Settings};
use crate::algorithm::Costs;
use crate::error::StoreError;
use crate::key::Key;
use crate::lock::Mutex;
use crate::policy::Policy;
use crate::priority::{Priority, Rank};

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
    /// By the names of shares and the number of the unit.
    shares: Mutex<HashMap<(String, usize), Counter>>,
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

/// The most shares of a policy that have series of their own, and the name of the others.
const MOST_SHARES: usize = 50;
const OTHER_SHARES: &str = "(others)";

/// The metrics of one unit.
#[derive(Debug)]
struct UnitMeters {
    name: &'static str,
    spent: Counter,
    refunded: Counter,
    debt: Counter,
}

impl Meters {
    pub(super) fn new(Settings { key_labels }: Settings, policy: &Policy) -> Self {
        let policy_units = policy.units();
        let policy = SharedString::from_shared(policy.label.clone());
        let values = slice::from_ref(&policy);
        with_recorder(|recorder| {
            describe(recorder);
            // With the key as a label, these are looked up for each request.
            let by_policy = if key_labels { &NoopRecorder } else { recorder };
            let outcome = |outcome| {
                let outcome = SharedString::const_str(outcome);
                REQUESTS.counter(by_policy, &[policy.clone(), outcome])
            };
            let level = |name| [policy.clone(), SharedString::const_str(name)];
            let units = policy_units.iter().map(|&name| {
                let values = [policy.clone(), SharedString::const_str(name)];
                UnitMeters {
                    name,
                    spent: SPENT.counter(by_policy, &values),
                    refunded: REFUNDED.counter(recorder, &values),
                    debt: DEBT.counter(recorder, &values),
                }
            });
            Self {
                key_labels,
                outcomes: OUTCOMES.map(outcome),
                units: units.collect(),
                wait: Priority::NAMES.map(|name| WAIT.histogram(by_policy, &level(name))),
                waiting: Priority::NAMES.map(|name| WAITING.gauge(by_policy, &level(name))),
                shares: Mutex::default(),
                combined: COMBINED.counter(recorder, values),
                inversions: INVERSIONS.counter(recorder, values),
                remembered: REMEMBERED.counter(recorder, values),
                places: PLACES.gauge(recorder, values),
                reclaimed: RECLAIMED.counter(recorder, values),
                lost: LOST.counter(recorder, values),
                queues: QUEUES.gauge(recorder, values),
                missed: MISSED.counter(recorder, values),
                guard: GUARD.gauge(recorder, values),
                pauses: PAUSES.counter(recorder, values),
                quarantines: QUARANTINES.counter(recorder, values),
                policy: policy.clone(),
            }
        })
    }

    #[inline]
    pub(super) fn ended(
        &self,
        (key, cost, rank): (&Key, &Costs, &Rank),
        outcome: Outcome,
        waited: Duration,
    ) {
        if let (Some(share), true) = (&rank.share, outcome.departs()) {
            self.spent_by(share.name(), cost);
        }
        let priority = rank.priority;
        if self.key_labels {
            return self.ended_of((key, cost, priority), outcome, waited);
        }
        self.outcomes[outcome as usize].increment(1);
        if outcome.departs() {
            let units = self.units.iter().zip(cost.0);
            units.for_each(|(unit, cost)| unit.spent.increment(cost.into()));
            self.wait[priority as usize].record(waited);
        }
    }

    /// Counts a departure of a share. Behind the first shares, all others have one series.
    #[cold]
    fn spent_by(&self, name: &str, cost: &Costs) {
        let mut shares = self.shares.lock();
        for (number, unit) in self.units.iter().enumerate() {
            let is_full = shares.len() >= MOST_SHARES * self.units.len();
            let is_known = |name: &str| shares.contains_key(&(name.to_owned(), number));
            let name = if is_known(name) || !is_full {
                name
            } else {
                OTHER_SHARES
            };
            let counter = shares.entry((name.to_owned(), number)).or_insert_with(|| {
                let texts = [name.to_owned(), unit.name.to_owned()];
                let [name, unit] = texts.map(SharedString::from_owned);
                let values = [self.policy.clone(), name, unit];
                with_recorder(|recorder| OF_SHARES.counter(recorder, &values))
            });
            counter.increment(cost.0[number].into());
        }
    }

    /// Counts a request that has ended, with the key as a label.
    #[cold]
    fn ended_of(
        &self,
        (key, cost, priority): (&Key, &Costs, Priority),
        outcome: Outcome,
        waited: Duration,
    ) {
        let name = SharedString::const_str(outcome.name());
        let [policy, key] = self.of_key(key);
        with_recorder(|recorder| {
            let requests = [policy.clone(), name, key.clone()];
            REQUESTS.counter(recorder, &requests).increment(1);
            if outcome.departs() {
                for (unit, cost) in self.units.iter().zip(cost.0) {
                    let unit = SharedString::const_str(unit.name);
                    let values = [policy.clone(), unit, key.clone()];
                    SPENT.counter(recorder, &values).increment(cost.into());
                }
                let level = SharedString::const_str(Priority::NAMES[priority as usize]);
                WAIT.histogram(recorder, &[policy, level, key])
                    .record(waited);
            }
        });
    }

    /// The cost of a departed request was corrected in a unit.
    pub(super) fn corrected(&self, unit: usize, difference: i64) {
        if let Some(unit) = self.units.get(unit) {
            let counter = if difference < 0 {
                &unit.refunded
            } else {
                &unit.debt
            };
            counter.increment(difference.unsigned_abs());
        }
    }

    /// So many more requests wait, or fewer.
    pub(super) fn waiting(&self, key: &Key, priority: Priority, more: f64) {
        let level = priority as usize;
        if self.key_labels {
            let [policy, key] = self.of_key(key);
            let values = [policy, SharedString::const_str(Priority::NAMES[level]), key];
            with_recorder(|recorder| WAITING.gauge(recorder, &values).increment(more));
        } else {
            self.waiting[level].increment(more);
        }
    }

    fn of_key(&self, key: &Key) -> [SharedString; 2] {
        let key = SharedString::from_owned(key.as_str().to_owned());
        [self.policy.clone(), key]
    }
}

/// The metrics of a limiter's store.
#[derive(Debug)]
pub(super) struct StoreMeters {
    outages: Counter,
    shards_out: Gauge,
    /// The part of the gauge that is this limiter's, as others share it.
    added: AtomicU32,
    /// By operation, then by result.
    calls: [[Counter; 3]; OPERATIONS.len()],
    latency: [Histogram; OPERATIONS.len()],
    requests_per_call: Histogram,
    keys_per_call: Histogram,
    returned: Counter,
}

/// The names of the operations, in the order of [`Operation`].
const OPERATIONS: [&str; 4] = ["take", "control", "peek", "ping"];

impl StoreMeters {
    pub(super) fn new(limiter: Arc<str>) -> Self {
        let policy = SharedString::from_shared(limiter);
        let values = slice::from_ref(&policy);
        let text = SharedString::const_str;
        with_recorder(|recorder| {
            describe(recorder);
            #[cfg(feature = "redis")]
            drop(RECONNECTS.counter(recorder, &[]));
            Self {
                outages: OUTAGES.counter(recorder, values),
                shards_out: OUT.gauge(recorder, values),
                added: AtomicU32::new(0),
                calls: OPERATIONS.map(|operation| {
                    ["ok", "out", "error"].map(|result| {
                        let values = [policy.clone(), text(operation), text(result)];
                        CALLS.counter(recorder, &values)
                    })
                }),
                latency: OPERATIONS.map(|operation| {
                    LATENCY.histogram(recorder, &[policy.clone(), text(operation)])
                }),
                requests_per_call: REQUESTS_PER_CALL.histogram(recorder, values),
                keys_per_call: KEYS_PER_CALL.histogram(recorder, values),
                returned: RETURNED.counter(recorder, values),
            }
        })
    }

    pub(super) fn out(&self, others: usize) {
        if others == 0 {
            self.outages.increment(1);
        }
        self.added.fetch_add(1, Ordering::Relaxed);
        self.shards_out.increment(1.0);
    }

    pub(super) fn back(&self) {
        self.added.fetch_sub(1, Ordering::Relaxed);
        self.shards_out.decrement(1.0);
    }

    pub(super) fn called<T>(
        &self,
        operation: Operation,
        keys: usize,
        result: &Result<T, StoreError>,
        took: Duration,
    ) {
        let nth = match result {
            Ok(_) => 0,
            Err(error) if error.is_outage() => 1,
            Err(_) => 2,
        };
        let operation = operation as usize;
        self.calls[operation][nth].increment(1);
        self.latency[operation].record(took);
        if keys > 0 {
            self.keys_per_call.record(keys as f64);
        }
    }

    pub(super) fn asked(&self, requests: u64, returned: usize) {
        if requests > 0 {
            self.requests_per_call.record(requests as f64);
        }
        self.returned.increment(returned as u64);
    }
}

impl Drop for StoreMeters {
    fn drop(&mut self) {
        self.shards_out.decrement(f64::from(*self.added.get_mut()));
    }
}

#[cfg(feature = "redis")]
pub(super) fn reconnected() {
    with_recorder(|recorder| {
        describe(recorder);
        RECONNECTS.counter(recorder, &[]).increment(1);
    });
}
