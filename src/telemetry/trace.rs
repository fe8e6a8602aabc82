//! Spans and events, by the crate `tracing`.
//!
//! Events are emitted without any lock: a subscriber may call a limiter.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use tracing::span::EnteredSpan;
use tracing::{Level, level_enabled};

use super::Outcome;
use crate::error::StoreError;
use crate::key::Key;
use crate::policy::Policy;

/// The target of all spans and events.
const TARGET: &str = "tower_throttle";

/// The spans and events of one policy.
#[derive(Debug, Clone)]
pub(super) struct Tracer {
    policy: Arc<str>,
    is_exempt: bool,
}

/// The span of a request that waits, if a subscriber wants it. It is a pointer, as requests are moved.
#[derive(Debug)]
pub(crate) struct Span(Option<Box<tracing::Span>>);

/// Inside of the span of a request, if a subscriber wants it, until this is dropped.
pub(crate) type Entered = Option<EnteredSpan>;

impl Tracer {
    pub(super) fn new(policy: &Policy) -> Self {
        Self {
            policy: policy.shared_label().clone(),
            is_exempt: policy.is_exempt(),
        }
    }

    /// Begins the span of a request. If no subscriber wants it, this reads one atomic number.
    #[inline]
    pub(super) fn begin(&self, key: &Key, cost: u32) -> Entered {
        if level_enabled!(Level::DEBUG) && !self.is_exempt {
            self.begin_span(key, cost)
        } else {
            None
        }
    }

    #[cold]
    fn begin_span(&self, key: &Key, cost: u32) -> Entered {
        let span = tracing::debug_span!(
            target: TARGET,
            "throttle",
            key = key.as_str(),
            policy = &*self.policy,
            cost,
            wait = tracing::field::Empty,
            outcome = tracing::field::Empty,
        );
        (!span.is_disabled()).then(|| span.entered())
    }

    #[inline]
    pub(super) fn ended(&self, entered: &Entered, outcome: Outcome, waited: Duration) {
        if let Some(span) = entered {
            record(span, outcome, waited);
        }
    }

    pub(super) fn missed(&self, key: &Key, late: Duration, guard: Duration) {
        let (late, guard) = (late.as_secs_f64(), guard.as_secs_f64());
        missed(&self.policy, key.as_str(), late, guard);
    }

    pub(super) fn paused(&self, key: &Key, lasts: Duration) {
        paused(&self.policy, key.as_str(), lasts.as_secs_f64());
    }

    pub(super) fn resumed(&self, key: &Key) {
        resumed(&self.policy, key.as_str());
    }

    pub(super) fn reset(&self, key: &Key) {
        reset(&self.policy, key.as_str());
    }

    pub(super) fn quarantined(&self, key: &Key, rests: Duration) {
        quarantined(&self.policy, key.as_str(), rests.as_secs_f64());
    }
}

#[cold]
fn record(span: &tracing::Span, outcome: Outcome, waited: Duration) {
    span.record("wait", waited.as_secs_f64());
    span.record("outcome", outcome.name());
}

pub(super) fn out(limiter: &str, shard: u64, error: &StoreError, others: usize) {
    let cause = error.source().map(ToString::to_string);
    let (error, cause) = (error.to_string(), cause.as_deref());
    match others {
        0 => store_out(limiter, shard, &error, cause),
        _ => another_out(limiter, shard, &error, cause),
    }
}

pub(super) fn back(limiter: &str, shard: u64, lasted: Duration, others: usize) {
    let lasted = lasted.as_secs_f64();
    match others {
        0 => store_back(limiter, shard, lasted),
        _ => another_back(limiter, shard, lasted),
    }
}

pub(super) fn clock_set(limiter: &str, ahead: f64) {
    clock_was_set(limiter, ahead);
}

#[cfg(feature = "redis")]
pub(super) fn reconnected() {
    connection_replaced();
}

#[cfg(feature = "redis")]
pub(super) fn subscribed(channel: &str, is_subscribed: bool) {
    if is_subscribed {
        nudges_arrive(channel);
    } else {
        no_nudges(channel);
    }
}

impl Span {
    pub(crate) const NONE: Self = Self(None);

    /// Enters the span, if there is one.
    #[inline]
    pub(crate) fn enter(&self) -> Entered {
        let span = self.0.as_ref()?;
        Some(tracing::Span::clone(span).entered())
    }

    /// The request waits.
    #[inline]
    pub(crate) fn keep(&mut self, entered: &Entered) {
        if let Some(entered) = entered
            && self.0.is_none()
        {
            self.0 = Some(Box::new(tracing::Span::clone(entered)));
        }
    }
}

/// Defines a function for each event, and lists them all.
macro_rules! events {
    ($(
        $(#[$attribute:meta])*
        $level:ident $name:ident($($field:ident: $kind:ty),* $(,)?) = $message:literal;
    )*) => {
        $(
            $(#[$attribute])*
            fn $name($($field: $kind),*) {
                tracing::event!(target: TARGET, Level::$level, $($field,)* $message);
            }
        )*

        /// The level, the message and the fields of each event.
        #[cfg(test)]
        pub(super) const EVENTS: &[(Level, &str, &[&str])] = &[
            $($(#[$attribute])* (Level::$level, $message, &[$(stringify!($field)),*]),)*
        ];
    };
}

events! {
    WARN store_out(policy: &str, shard: u64, error: &str, cause: Option<&str>) = "the store is out";
    DEBUG another_out(policy: &str, shard: u64, error: &str, cause: Option<&str>)
        = "another shard of the store is out";
    DEBUG another_back(policy: &str, shard: u64, lasted: f64)
        = "a shard of the store is back, and others are out";
    INFO store_back(policy: &str, shard: u64, lasted: f64) = "the store is back";
    WARN clock_was_set(policy: &str, ahead: f64) = "the clock of the store was set";
    INFO paused(policy: &str, key: &str, lasts: f64) = "a key was paused";
    INFO resumed(policy: &str, key: &str) = "a key was resumed";
    INFO reset(policy: &str, key: &str) = "a key was reset";
    DEBUG missed(policy: &str, key: &str, late: f64, guard: f64) = "a grant was missed";
    WARN quarantined(policy: &str, key: &str, rests: f64)
        = "a key is in quarantine, as the store has lost its state";
    #[cfg(feature = "redis")]
    INFO connection_replaced() = "a connection to redis was replaced";
    #[cfg(feature = "redis")]
    WARN no_nudges(channel: &str) = "nudges no longer arrive";
    #[cfg(feature = "redis")]
    INFO nudges_arrive(channel: &str) = "nudges arrive";
}
