//! Spans and events, by the crate `tracing`.
//!
//! An event is told of without any lock: whoever hears of it may ask a limiter.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::span::EnteredSpan;
use tracing::{Level, level_enabled};

use super::{Forfeits, Outcome, RULES, Turn, label};
use crate::key::Key;
use crate::outage::Outage;
use crate::pauses::News;
use crate::policy::Policy;
use crate::store::{Notice, StoreError};

/// Of all spans and events.
const TARGET: &str = "tower_throttle";

/// What one epoch tells of.
#[derive(Debug, Clone)]
pub(super) struct Tracer {
    policy: Arc<str>,
    /// Whether it takes the store's place while that is out.
    stands_in: bool,
    /// Whether its requests have no spans.
    is_silent: bool,
    /// The keys of which something is being said through this limiter, rather than by others.
    saying: Arc<Mutex<Vec<Key>>>,
}

/// What is told of a store, under whatever policies.
#[derive(Debug)]
pub(super) struct OfStore {
    policy: Arc<str>,
    /// What takes its place while it is out.
    stand_in: &'static str,
}

/// The span of a request that waits, where anybody wants one. No more than a pointer, as requests are moved around.
#[derive(Debug)]
pub(crate) struct Span(Option<Box<tracing::Span>>);

/// In the span of a request, where anybody wants one, until this is dropped.
pub(crate) type Entered = Option<EnteredSpan>;

/// Something is being said of a key, until this is dropped.
pub(crate) struct Saying {
    saying: Arc<Mutex<Vec<Key>>>,
    key: Key,
}

impl Tracer {
    pub(super) fn new(policy: &Policy) -> Self {
        Self {
            policy: label(policy),
            stands_in: false,
            is_silent: false,
            saying: Arc::default(),
        }
    }

    /// Of what is not limited.
    pub(super) fn none() -> Self {
        Self {
            policy: Arc::from(""),
            stands_in: false,
            is_silent: true,
            saying: Arc::default(),
        }
    }

    pub(super) fn stand_in(&self) -> Self {
        Self {
            stands_in: true,
            ..self.clone()
        }
    }

    pub(super) fn successor(&self, policy: &Policy) -> Self {
        Self {
            saying: self.saying.clone(),
            ..Self::new(policy)
        }
    }

    /// Begins the span of a request. It costs one look at an atomic number where nobody wants it.
    #[inline]
    pub(super) fn begin(&self, key: &Key, cost: u32) -> Entered {
        if level_enabled!(Level::DEBUG) && !self.is_silent {
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
            self.record(span, outcome, waited);
        }
    }

    #[cold]
    fn record(&self, span: &tracing::Span, outcome: Outcome, waited: Duration) {
        span.record("wait", waited.as_secs_f64());
        span.record("outcome", outcome.name(self.stands_in));
    }

    pub(super) fn saying(&self, key: &Key) -> Saying {
        self.saying.lock().push(key.clone());
        Saying {
            saying: self.saying.clone(),
            key: key.clone(),
        }
    }

    pub(super) fn paused(&self, key: &Key, news: News, notice: &Notice) {
        if self.stands_in {
            return;
        }
        let is_said_here = self.saying.lock().contains(key);
        let by = if is_said_here { "here" } else { "elsewhere" };
        let lasts = Duration::from_micros(notice.paused.saturating_sub(notice.now)).as_secs_f64();
        let (policy, key) = (&*self.policy, key.as_str());
        match news {
            News::None => {}
            News::Begun => paused(policy, key, lasts, by),
            News::Extended => extended(policy, key, lasts, by),
            News::Over => resumed(policy, key, by),
        }
    }

    pub(super) fn forfeited(&self, key: &Key, forfeits: Forfeits, guard: Duration) {
        let Forfeits { count, late } = forfeits;
        let (late, guard) = (late.as_secs_f64(), guard.as_secs_f64());
        forfeited(&self.policy, key.as_str(), count, late, guard);
    }

    pub(super) fn lost(&self, key: &Key, rests: Duration) {
        lost(&self.policy, key.as_str(), rests.as_secs_f64());
    }

    pub(super) fn voided(&self, key: &Key) {
        voided(&self.policy, key.as_str());
    }

    pub(super) fn clock_set(&self, ahead: f64) {
        clock_set(&self.policy, ahead);
    }
}

impl OfStore {
    pub(super) fn of(policy: &Policy) -> Self {
        let stand_in = match policy.outage() {
            Outage::Deny => "none",
            Outage::Allow => "everything",
            Outage::Local { .. } => "share",
        };
        let policy = label(policy);
        Self { policy, stand_in }
    }

    /// Of rules, each of which says what stands in.
    pub(super) fn of_rules() -> Self {
        Self {
            policy: Arc::from(RULES),
            stand_in: "by rule",
        }
    }

    pub(super) fn none() -> Self {
        Self {
            policy: Arc::from(""),
            stand_in: "none",
        }
    }

    pub(super) fn turned(&self, turn: Turn<'_>) {
        let policy = &*self.policy;
        match turn {
            Turn::Out { error, part } => {
                let (error, cause) = explained(error);
                out(policy, part, &error, cause.as_deref(), self.stand_in);
            }
            Turn::AnotherOut { error, part } => {
                let (error, cause) = explained(error);
                another_out(policy, part, &error, cause.as_deref());
            }
            Turn::OutAgain { error, part } => {
                let (error, cause) = explained(error);
                out_again(policy, part, &error, cause.as_deref());
            }
            Turn::Alive { part } => alive(policy, part),
            Turn::AnotherBack { part, lasted } => another_back(policy, part, lasted.as_secs_f64()),
            Turn::Back { part, lasted } => back(policy, part, lasted.as_secs_f64()),
        }
    }
}

#[cfg(feature = "redis")]
pub(super) fn reconnected() {
    reconnected_to();
}

#[cfg(feature = "redis")]
pub(super) fn scripts_loaded() {
    loaded();
}

#[cfg(feature = "redis")]
pub(super) fn listens(channel: &str, is_heard: bool) {
    if is_heard {
        heard(channel);
    } else {
        unheard(channel);
    }
}

impl Span {
    pub(crate) const NONE: Self = Self(None);

    /// Enters it, if there is one.
    #[inline]
    pub(crate) fn enter(&self) -> Entered {
        let span = self.0.as_ref()?;
        Some(tracing::Span::clone(span).entered())
    }

    /// The request goes on to wait.
    #[inline]
    pub(crate) fn keep(&mut self, entered: &Entered) {
        if let Some(entered) = entered
            && self.0.is_none()
        {
            self.0 = Some(Box::new(tracing::Span::clone(entered)));
        }
    }
}

impl Drop for Saying {
    fn drop(&mut self) {
        let mut saying = self.saying.lock();
        if let Some(place) = saying.iter().position(|key| *key == self.key) {
            saying.swap_remove(place);
        }
    }
}

/// What the store said, and what it was caused by.
fn explained(error: &StoreError) -> (String, Option<String>) {
    (error.to_string(), error.source().map(ToString::to_string))
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
    WARN out(policy: &str, part: u64, error: &str, cause: Option<&str>, stand_in: &str)
        = "the store is out";
    DEBUG another_out(policy: &str, part: u64, error: &str, cause: Option<&str>)
        = "another part of the store is out";
    DEBUG out_again(policy: &str, part: u64, error: &str, cause: Option<&str>)
        = "the store gives signs of life, and answers no calls";
    DEBUG alive(policy: &str, part: u64) = "the store gives a sign of life";
    DEBUG another_back(policy: &str, part: u64, lasted: f64)
        = "a part of the store is back, and others are not";
    INFO back(policy: &str, part: u64, lasted: f64) = "the store is back";
    INFO paused(policy: &str, key: &str, lasts: f64, by: &str) = "a key is paused";
    INFO extended(policy: &str, key: &str, lasts: f64, by: &str) = "a pause is extended";
    INFO resumed(policy: &str, key: &str, by: &str) = "a pause is over before its time";
    DEBUG forfeited(policy: &str, key: &str, count: u64, late: f64, guard: f64)
        = "permits came too late and were forfeited";
    WARN lost(policy: &str, key: &str, rests: f64) = "a key rests, as the store knows nothing of its state";
    DEBUG voided(policy: &str, key: &str) = "slots of a key are void, as its state was lost or reset";
    WARN clock_set(policy: &str, ahead: f64) = "somebody has set the store's clock";
    #[cfg(feature = "redis")]
    INFO reconnected_to() = "a connection to redis was replaced";
    #[cfg(feature = "redis")]
    INFO loaded() = "a redis did not know the scripts, and has loaded them";
    #[cfg(feature = "redis")]
    WARN unheard(channel: &str) = "what others say is heard no more";
    #[cfg(feature = "redis")]
    INFO heard(channel: &str) = "what others say is heard";
}
