//! Nobody wants spans or events.

use std::time::Duration;

use super::{Forfeits, Outcome, Turn};
use crate::key::Key;
use crate::pauses::News;
use crate::policy::Policy;
use crate::store::Notice;

#[derive(Debug, Clone)]
pub(super) struct Tracer;

#[derive(Debug)]
pub(crate) struct Span;

pub(crate) struct Entered;

pub(crate) struct Saying;

impl Tracer {
    pub(super) fn new(_policy: &Policy) -> Self {
        Self
    }

    pub(super) fn none() -> Self {
        Self
    }

    pub(super) fn stand_in(&self) -> Self {
        Self
    }

    pub(super) fn successor(&self, _policy: &Policy) -> Self {
        Self
    }

    #[inline(always)]
    pub(super) fn begin(&self, _key: &Key, _cost: u32) -> Entered {
        Entered
    }

    #[inline(always)]
    pub(super) fn ended(&self, _entered: &Entered, _outcome: Outcome, _waited: Duration) {}

    pub(super) fn saying(&self, _key: &Key) -> Saying {
        Saying
    }

    pub(super) fn paused(&self, _key: &Key, _news: News, _notice: &Notice) {}

    pub(super) fn forfeited(&self, _key: &Key, _forfeits: Forfeits, _guard: Duration) {}

    pub(super) fn lost(&self, _key: &Key, _rests: Duration) {}

    pub(super) fn voided(&self, _key: &Key) {}

    pub(super) fn clock_set(&self, _ahead: f64) {}
}

#[derive(Debug)]
pub(super) struct OfStore;

impl OfStore {
    pub(super) fn of(_policy: &Policy) -> Self {
        Self
    }

    pub(super) fn of_rules() -> Self {
        Self
    }

    pub(super) fn none() -> Self {
        Self
    }

    pub(super) fn turned(&self, _turn: Turn<'_>) {}
}

#[cfg(feature = "redis")]
pub(super) fn reconnected() {}

#[cfg(feature = "redis")]
pub(super) fn scripts_loaded() {}

#[cfg(feature = "redis")]
pub(super) fn listens(_channel: &str, _is_heard: bool) {}

impl Span {
    pub(crate) const NONE: Self = Self;

    #[inline(always)]
    pub(crate) fn enter(&self) -> Entered {
        Entered
    }

    #[inline(always)]
    pub(crate) fn keep(&mut self, _entered: &Entered) {}
}
