//! Counters, gauges and histograms, by the crate `metrics`.

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, SharedString, with_recorder};

#[cfg(feature = "redis")]
use super::table::RECONNECTS;
use super::table::{
    CALLS, GUARD, KEYS_PER_CALL, LATENCY, MISSED, OUT, OUTAGES, PAUSES, QUARANTINES, QUEUES,
    REMEMBERED, REQUESTS, REQUESTS_PER_CALL, RETURNED, SPENT, WAIT, WAITING, describe,
};
use super::{Operation, Outcome};
use crate::error::StoreError;
use crate::key::Key;
use crate::policy::Policy;

/// The settings of a user.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settings {
    pub(crate) key_labels: bool,
}

/// The metrics of one policy.
///
/// All are looked up once, in the recorder of that moment, as that takes longer than a permit.
#[derive(Clone)]
pub(super) struct Meters(Arc<Handles>);

struct Handles {
    key_labels: bool,
    policy: SharedString,
    outcomes: [Counter; Outcome::ALL.len()],
    spent: Counter,
    wait: Histogram,
    remembered: Counter,
    waiting: Gauge,
    queues: Gauge,
    missed: Counter,
    guard: Gauge,
    pauses: Counter,
    quarantines: Counter,
}

impl Meters {
    pub(super) fn new(settings: Settings, policy: &Policy) -> Self {
        let policy = SharedString::from_shared(policy.shared_label().clone());
        let values = slice::from_ref(&policy);
        Self(Arc::new(with_recorder(|recorder| {
            describe(recorder);
            // With the key as a label, some are looked up for each request.
            let key_labels = settings.key_labels;
            let outcome = |outcome: Outcome| match key_labels {
                true => Counter::noop(),
                false => {
                    let name = SharedString::const_str(outcome.name());
                    REQUESTS.counter(recorder, &[policy.clone(), name])
                }
            };
            Handles {
                key_labels,
                outcomes: Outcome::ALL.map(outcome),
                spent: match key_labels {
                    true => Counter::noop(),
                    false => SPENT.counter(recorder, values),
                },
                wait: match key_labels {
                    true => Histogram::noop(),
                    false => WAIT.histogram(recorder, values),
                },
                waiting: match key_labels {
                    true => Gauge::noop(),
                    false => WAITING.gauge(recorder, values),
                },
                remembered: REMEMBERED.counter(recorder, values),
                queues: QUEUES.gauge(recorder, values),
                missed: MISSED.counter(recorder, values),
                guard: GUARD.gauge(recorder, values),
                pauses: PAUSES.counter(recorder, values),
                quarantines: QUARANTINES.counter(recorder, values),
                policy: policy.clone(),
            }
        })))
    }

    #[inline]
    pub(super) fn ended(&self, key: &Key, cost: u32, outcome: Outcome, waited: Duration) {
        if self.0.key_labels {
            return self.ended_of(key, cost, outcome, waited);
        }
        self.0.outcomes[outcome.place()].increment(1);
        if outcome.departs() {
            self.0.spent.increment(cost.into());
            self.0.wait.record(waited);
        }
    }

    /// Counts a request that has ended, with the key as a label.
    #[cold]
    fn ended_of(&self, key: &Key, cost: u32, outcome: Outcome, waited: Duration) {
        let name = SharedString::const_str(outcome.name());
        let [policy, key] = self.of_key(key);
        with_recorder(|recorder| {
            let requests = [policy.clone(), name, key.clone()];
            REQUESTS.counter(recorder, &requests).increment(1);
            if outcome.departs() {
                let values = [policy, key];
                SPENT.counter(recorder, &values).increment(cost.into());
                WAIT.histogram(recorder, &values).record(waited);
            }
        });
    }

    pub(super) fn remembered(&self) {
        self.0.remembered.increment(1);
    }

    /// So many more requests wait, or fewer.
    pub(super) fn waiting(&self, key: &Key, more: f64) {
        if self.0.key_labels {
            let values = self.of_key(key);
            with_recorder(|recorder| WAITING.gauge(recorder, &values).increment(more));
        } else {
            self.0.waiting.increment(more);
        }
    }

    pub(super) fn queues(&self, more: f64) {
        self.0.queues.increment(more);
    }

    pub(super) fn missed(&self, guard: Duration) {
        self.0.missed.increment(1);
        self.guard(guard);
    }

    pub(super) fn guard(&self, guard: Duration) {
        self.0.guard.set(guard);
    }

    pub(super) fn paused(&self) {
        self.0.pauses.increment(1);
    }

    pub(super) fn quarantined(&self) {
        self.0.quarantines.increment(1);
    }

    fn of_key(&self, key: &Key) -> [SharedString; 2] {
        let key = SharedString::from_owned(key.as_str().to_owned());
        [self.0.policy.clone(), key]
    }
}

/// The metrics of a limiter's store.
pub(super) struct OfStore {
    outages: Counter,
    shards_out: Gauge,
    /// The part of the gauge that is this limiter's, as others share it.
    added: AtomicU32,
    /// By operation, then by result.
    calls: [[Counter; 3]; Operation::ALL.len()],
    latency: [Histogram; Operation::ALL.len()],
    requests_per_call: Histogram,
    keys_per_call: Histogram,
    returned: Counter,
}

impl Operation {
    const ALL: [Self; 4] = [Self::Take, Self::Control, Self::Peek, Self::Ping];

    fn name(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Control => "control",
            Self::Peek => "peek",
            Self::Ping => "ping",
        }
    }
}

impl OfStore {
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
                calls: Operation::ALL.map(|operation| {
                    ["ok", "out", "error"].map(|result| {
                        let values = [policy.clone(), text(operation.name()), text(result)];
                        CALLS.counter(recorder, &values)
                    })
                }),
                latency: Operation::ALL.map(|operation| {
                    LATENCY.histogram(recorder, &[policy.clone(), text(operation.name())])
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

impl Drop for OfStore {
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
