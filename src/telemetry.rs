// Users read docs/telemetry.md.

#![cfg_attr(
    not(all(feature = "metrics", feature = "tracing")),
    allow(
        unused_variables,
        clippy::if_same_then_else,
        reason = "only spans, events and metrics need them"
    )
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::algorithm::{Command, Settlement};
use crate::error::StoreError;
use crate::key::Key;
use crate::lock::Mutex;
use crate::policy::Policy;
use crate::priority::{Priority, Rank};
use crate::queue::Turn;
use crate::quota::UnitNames;

#[cfg(feature = "metrics")]
mod meters;
#[cfg_attr(not(feature = "tracing"), path = "telemetry/no_span.rs")]
mod span;
#[cfg(feature = "metrics")]
mod table;

mod outcome;

pub(crate) use self::{outcome::Outcome, span::Span};

/// The target of all spans and events.
#[cfg(feature = "tracing")]
const TARGET: &str = "tower_throttle";

/// Emits an event, if the feature `tracing` is on. No lock may be held, because a subscriber may call a limiter.
macro_rules! event {
    ($level:ident $message:literal $(: $($fields:tt)+)?) => {{
        #[cfg(feature = "tracing")]
        tracing::event!(target: TARGET, tracing::Level::$level, $($($fields)+,)? $message);
    }};
}

/// Updates metrics, if the feature `metrics` is on.
macro_rules! meter {
    ($update:expr) => {{
        #[cfg(feature = "metrics")]
        $update;
    }};
}

/// The spans, events and metrics of the requests of one policy.
///
/// It is called without any lock, except to count.
#[derive(Debug)]
pub(crate) struct Telemetry {
    policy: Arc<str>,
    is_exempt: bool,
    /// These events were emitted.
    has_waited_long: AtomicBool,
    has_lacked_key: AtomicBool,
    has_left_unsettled: AtomicBool,
    /// The end of the quarantine that was reported last.
    quarantined: Mutex<Option<Instant>>,
    #[cfg(feature = "metrics")]
    meters: meters::Meters,
}

impl Telemetry {
    /// With `key_labels`, the metrics of requests have the key as a label. `before` is that of the policy which this one replaces.
    pub(crate) fn new(key_labels: bool, policy: &Policy, before: Option<&Self>) -> Self {
        let this = Self {
            policy: policy.label.clone(),
            is_exempt: policy.is_exempt,
            has_waited_long: AtomicBool::new(false),
            has_lacked_key: AtomicBool::new(false),
            has_left_unsettled: AtomicBool::new(false),
            quarantined: Mutex::new(None),
            #[cfg(feature = "metrics")]
            meters: {
                let before = before.filter(|it| it.policy == policy.label);
                meters::Meters::new(key_labels, policy, before.map(|it| &it.meters))
            },
        };
        this.guard(policy.guard());
        this
    }

    /// A request has begun. It has a span unless the policy is exempt.
    pub(crate) fn begin(&self, key: &Key, cost: u32) -> Span {
        match self.is_exempt {
            true => Span::default(),
            false => Span::begin(&self.policy, key, cost),
        }
    }

    /// A request has ended. If it departs, these are its turn and its rank.
    #[inline]
    pub(crate) fn ended(
        &self,
        span: Span,
        key: &Key,
        outcome: Outcome,
        waited: Duration,
        departs: Option<(&Turn, &Rank)>,
    ) {
        span.end(outcome, waited);
        meter!(if !self.is_exempt {
            self.meters.ended(key, outcome, waited, departs);
        });
    }

    /// The permit of a request that has ended is given back.
    pub(crate) fn forfeited(&self, turn: &Turn) {
        meter!((self.meters.costs(turn)).for_each(|(unit, cost)| unit.refunded.increment(cost)));
    }

    /// The costs of a departed request were corrected, in these units.
    pub(crate) fn corrected(&self, units: UnitNames, settlements: &[Settlement]) {
        for it in settlements {
            meter!(self.meters.corrected(units[it.unit], it.difference));
        }
    }

    /// The cost that a response states cannot be charged. Emits one event.
    pub(crate) fn unsettled(&self, key: &Key, error: &dyn std::error::Error) {
        if !self.has_left_unsettled.swap(true, Ordering::Relaxed) {
            let (policy, key, error) = (&*self.policy, key.as_str(), error.to_string());
            event!(WARN "a cost was not corrected": policy, key, error);
        }
    }

    /// A request was refused without a call to the store.
    #[inline]
    pub(crate) fn remembered(&self) {
        meter!(self.meters.remembered.increment(1));
    }

    /// There are so many more requests that wait, or fewer.
    #[inline]
    pub(crate) fn waiting(&self, key: &Key, priority: Priority, more: f64) {
        meter!(self.meters.waiting(key, priority, more));
    }

    /// The requests of a share are combined with those of others, as there are too many shares.
    pub(crate) fn combined(&self) {
        meter!(self.meters.combined.increment(1));
    }

    /// A request departed while one of a higher priority waited.
    pub(crate) fn inverted(&self) {
        meter!(self.meters.inversions.increment(1));
    }

    /// So many more places are in use, or fewer.
    pub(crate) fn places(&self, more: f64) {
        meter!(self.meters.places.increment(more));
    }

    /// The store has reclaimed so many places, as their leases had ended.
    pub(crate) fn reclaimed_places(&self, places: u32) {
        meter!(self.meters.reclaimed.increment(places.into()));
    }

    /// The lease of so many places in use has ended.
    pub(crate) fn lost_places(&self, key: &Key, places: u32) {
        let (policy, key) = (&*self.policy, key.as_str());
        event!(WARN "the lease of requests in progress has ended": policy, key, places);
        meter!(self.meters.lost.increment(places.into()));
    }

    /// There are so many more queues, or fewer.
    pub(crate) fn queues(&self, more: f64) {
        meter!(self.meters.queues.increment(more));
    }

    /// A request without a bound is expected to wait for so long. Emits one event.
    pub(crate) fn waits_long(&self, key: &Key, wait: Duration) {
        if !self.has_waited_long.swap(true, Ordering::Relaxed) {
            let (policy, key, wait) = (&*self.policy, key.as_str(), wait.as_secs_f64());
            event!(WARN "a request has to wait for more than a minute; set max_wait to refuse it": policy, key, wait);
        }
    }

    /// A request has no key for this reason, which concerns every request. Emits one event.
    pub(crate) fn lacks_key(&self, reason: &str) {
        if !self.has_lacked_key.swap(true, Ordering::Relaxed) {
            let policy = &*self.policy;
            event!(WARN "requests have no key, as the server is not set up for it": policy, reason);
        }
    }

    /// A grant was missed by so much.
    pub(crate) fn missed(&self, key: &Key, late: Duration, guard: Duration) {
        let (policy, key) = (&*self.policy, key.as_str());
        let late = late.as_secs_f64();
        event!(DEBUG "a grant was missed": policy, key, late, guard = guard.as_secs_f64());
        meter!(self.meters.missed.increment(1));
        self.guard(guard);
    }

    /// The guard follows the round trips.
    pub(crate) fn guard(&self, guard: Duration) {
        meter!(self.meters.guard.set(guard));
    }

    /// This process has applied a command to a key.
    pub(crate) fn commanded(&self, key: &Key, command: &Command) {
        let (policy, key) = (&*self.policy, key.as_str());
        match command {
            Command::Pause { span, .. } => {
                let lasts = Duration::from_micros(*span).as_secs_f64();
                event!(INFO "a key was paused": policy, key, lasts);
                meter!(self.meters.pauses.increment(1));
            }
            Command::Resume => event!(INFO "a key was resumed": policy, key),
            Command::Reset => event!(INFO "a key was reset": policy, key),
            Command::Allow { .. } => {}
        }
    }

    /// The store has lost the state of a key, which rests for so long. It has probably lost those of other keys, too.
    pub(crate) fn quarantined(&self, key: &Key, rests: Duration) {
        let now = Instant::now();
        let is_first = {
            let mut ends = self.quarantined.lock();
            let is_first = ends.is_none_or(|ends| ends < now);
            if is_first {
                *ends = Some(now + rests);
            }
            is_first
        };
        let (policy, key) = (&*self.policy, key.as_str());
        let rests = rests.as_secs_f64();
        if is_first {
            event!(WARN "a key is in quarantine, as the store has lost its state": policy, key, rests);
        } else {
            event!(DEBUG "another key is in quarantine": policy, key, rests);
        }
        meter!(self.meters.quarantines.increment(1));
    }
}

/// Makes something whose metrics are not recorded.
pub(crate) fn unrecorded<T>(make: impl FnOnce() -> T) -> T {
    #[cfg(feature = "metrics")]
    return metrics::with_local_recorder(&metrics::NoopRecorder, make);
    #[cfg(not(feature = "metrics"))]
    make()
}

/// An operation on the store.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    Take,
    Control,
    Peek,
    Ping,
}

/// The events and metrics of a limiter's store.
#[derive(Debug)]
pub(crate) struct StoreTelemetry {
    limiter: Arc<str>,
    /// Whether the metrics of requests have the key as a label.
    pub(crate) key_labels: bool,
    #[cfg(feature = "metrics")]
    meters: meters::StoreMeters,
}

impl StoreTelemetry {
    /// `limiter` is the label of the limiter's policy, or `rules`.
    pub(crate) fn new(limiter: Arc<str>, key_labels: bool) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            meters: meters::StoreMeters::new(limiter.clone()),
            limiter,
            key_labels,
        }
    }

    /// A shard is out, beside so many others.
    pub(crate) fn out(&self, shard: u64, error: &StoreError, others: usize) {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        let (policy, error, cause) = (&*self.limiter, &*error.to_string(), cause.as_deref());
        if others == 0 {
            event!(WARN "the store is out": policy, shard, error, cause);
        } else {
            event!(DEBUG "another shard of the store is out": policy, shard, error, cause);
        }
        meter!({
            if others == 0 {
                self.meters.outages.increment(1);
            }
            self.meters.added.fetch_add(1, Ordering::Relaxed);
            self.meters.shards_out.increment(1.0);
        });
    }

    /// A shard is back after so long, and so many others are out.
    pub(crate) fn back(&self, shard: u64, lasted: Duration, others: usize) {
        let (policy, lasted) = (&*self.limiter, lasted.as_secs_f64());
        if others == 0 {
            event!(INFO "the store is back": policy, shard, lasted);
        } else {
            event!(DEBUG "a shard of the store is back, and others are out": policy, shard, lasted);
        }
        meter!({
            self.meters.added.fetch_sub(1, Ordering::Relaxed);
            self.meters.shards_out.decrement(1.0);
        });
    }

    /// The store's clock was set forward by so many seconds, or back if that is below 0.
    pub(crate) fn clock_set(&self, ahead: f64) {
        event!(WARN "the clock of the store was set": policy = &*self.limiter, ahead);
    }

    /// A call for so many keys has ended after so long.
    pub(crate) fn called<T>(
        &self,
        operation: Operation,
        keys: usize,
        result: &Result<T, StoreError>,
        took: Duration,
    ) {
        meter!({
            let nth = match result {
                Ok(_) => 0,
                Err(error) if error.is_outage() => 1,
                Err(_) => 2,
            };
            let operation = operation as usize;
            self.meters.calls[operation][nth].increment(1);
            self.meters.latency[operation].record(took);
            if keys > 0 {
                self.meters.keys_per_call.record(keys as f64);
            }
        });
    }

    /// A call asks for so many requests, and gives so many departures back.
    pub(crate) fn asked(&self, requests: u64, returned: usize) {
        meter!({
            if requests > 0 {
                self.meters.requests_per_call.record(requests as f64);
            }
            self.meters.returned.increment(returned as u64);
        });
    }
}

/// A response has a malformed header.
pub(crate) fn malformed(header: &str) {
    event!(WARN "a response states a limit in a malformed header, which is ignored": header);
}

/// A connection to Redis has taken the place of another.
pub(crate) fn reconnected() {
    event!(INFO "a connection to redis was replaced");
    meter!(meters::reconnected());
}

/// Nudges arrive on this channel from now on, or no longer.
pub(crate) fn subscribed(channel: &str, is_subscribed: bool) {
    if is_subscribed {
        event!(INFO "nudges arrive": channel);
    } else {
        event!(WARN "nudges no longer arrive": channel);
    }
}
