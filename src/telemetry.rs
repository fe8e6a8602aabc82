// Users read docs/telemetry.md.

use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::Command;
use crate::error::StoreError;
use crate::key::Key;
use crate::policy::Policy;

#[cfg(feature = "metrics")]
mod meters;
mod outcome;
#[cfg(feature = "metrics")]
mod table;
#[cfg(all(test, feature = "metrics", feature = "redis", feature = "tracing"))]
mod tests;
#[cfg(feature = "tracing")]
mod trace;

// Where a feature is off, a module of the same functions takes its place, which do nothing.
#[cfg(not(feature = "metrics"))]
#[path = "telemetry/no_meters.rs"]
mod meters;
#[cfg(not(feature = "tracing"))]
#[path = "telemetry/no_trace.rs"]
mod trace;

use self::meters::Meters;
use self::trace::Tracer;
pub(crate) use self::{
    meters::Settings,
    outcome::Outcome,
    trace::{Entered, Span},
};

/// The spans, events and metrics of the requests of one policy.
///
/// It is called without any lock, except where something is only counted.
#[derive(Debug, Clone)]
pub(crate) struct Telemetry {
    tracer: Tracer,
    meters: Meters,
}

impl Telemetry {
    pub(crate) fn new(settings: Settings, policy: &Policy) -> Self {
        let this = Self {
            tracer: Tracer::new(policy),
            meters: Meters::new(settings, policy),
        };
        this.meters.guard(policy.guard());
        this
    }

    /// A request has begun, and is being polled.
    #[inline]
    pub(crate) fn begin(&self, key: &Key, cost: u32) -> Entered {
        self.tracer.begin(key, cost)
    }

    /// A request has ended.
    #[inline]
    pub(crate) fn ended(
        &self,
        entered: &Entered,
        (key, cost): (&Key, u32),
        outcome: Outcome,
        waited: Duration,
    ) {
        self.tracer.ended(entered, outcome, waited);
        self.meters.ended(key, cost, outcome, waited);
    }

    /// A request was refused without a call to the store.
    #[inline]
    pub(crate) fn remembered(&self) {
        self.meters.remembered();
    }

    /// A request waits.
    #[inline]
    pub(crate) fn joined(&self, key: &Key) {
        self.meters.waiting(key, 1.0);
    }

    /// A request no longer waits.
    #[inline]
    pub(crate) fn left(&self, key: &Key) {
        self.meters.waiting(key, -1.0);
    }

    /// There are so many more queues, or fewer.
    #[inline]
    pub(crate) fn queues(&self, more: f64) {
        self.meters.queues(more);
    }

    /// A grant was missed by so much.
    pub(crate) fn missed(&self, key: &Key, late: Duration, guard: Duration) {
        self.tracer.missed(key, late, guard);
        self.meters.missed(guard);
    }

    /// The guard follows the round trips.
    pub(crate) fn guard(&self, guard: Duration) {
        self.meters.guard(guard);
    }

    /// This process has applied a command to a key.
    pub(crate) fn commanded(&self, key: &Key, command: &Command) {
        match command {
            Command::Pause { span, .. } => {
                self.tracer.paused(key, Duration::from_micros(*span));
                self.meters.paused();
            }
            Command::Resume => self.tracer.resumed(key),
            Command::Reset => self.tracer.reset(key),
            Command::Allow { .. } => {}
        }
    }

    /// The store has lost the state of a key, which rests for so long.
    pub(crate) fn quarantined(&self, key: &Key, rests: Duration) {
        self.tracer.quarantined(key, rests);
        self.meters.quarantined();
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
    meters: meters::OfStore,
}

impl StoreTelemetry {
    /// `limiter` is the label of the limiter's policy, or `rules`.
    pub(crate) fn new(limiter: Arc<str>) -> Self {
        Self {
            meters: meters::OfStore::new(limiter.clone()),
            limiter,
        }
    }

    /// A shard is out, beside so many others.
    pub(crate) fn out(&self, shard: u64, error: &StoreError, others: usize) {
        trace::out(&self.limiter, shard, error, others);
        self.meters.out(others);
    }

    /// A shard is back after so long, and so many others are out.
    pub(crate) fn back(&self, shard: u64, lasted: Duration, others: usize) {
        trace::back(&self.limiter, shard, lasted, others);
        self.meters.back();
    }

    /// The store's clock was set forward by so many seconds, or back if that is below 0.
    pub(crate) fn clock_set(&self, ahead: f64) {
        trace::clock_set(&self.limiter, ahead);
    }

    /// A call for so many keys has ended after so long.
    pub(crate) fn called<T>(
        &self,
        operation: Operation,
        keys: usize,
        result: &Result<T, StoreError>,
        took: Duration,
    ) {
        self.meters.called(operation, keys, result, took);
    }

    /// A call asks for so many requests, and gives so many departures back.
    pub(crate) fn asked(&self, requests: u64, returned: usize) {
        self.meters.asked(requests, returned);
    }
}

/// A connection to Redis has taken the place of another.
#[cfg(feature = "redis")]
pub(crate) fn reconnected() {
    trace::reconnected();
    meters::reconnected();
}

/// Nudges arrive on this channel from now on, or no longer.
#[cfg(feature = "redis")]
pub(crate) fn subscribed(channel: &str, is_subscribed: bool) {
    trace::subscribed(channel, is_subscribed);
}
