//! There are no spans and no events.

use std::time::Duration;

use super::Outcome;
use crate::error::StoreError;
use crate::key::Key;
use crate::policy::Policy;

#[derive(Debug, Clone)]
pub(super) struct Tracer;

#[derive(Debug)]
pub(crate) struct Span;

pub(crate) struct Entered;

impl Tracer {
    pub(super) fn new(_policy: &Policy) -> Self {
        Self
    }

    #[inline(always)]
    pub(super) fn begin(&self, _key: &Key, _cost: u32) -> Entered {
        Entered
    }

    #[inline(always)]
    pub(super) fn ended(&self, _entered: &Entered, _outcome: Outcome, _waited: Duration) {}

    pub(super) fn missed(&self, _key: &Key, _late: Duration, _guard: Duration) {}

    pub(super) fn paused(&self, _key: &Key, _lasts: Duration) {}

    pub(super) fn resumed(&self, _key: &Key) {}

    pub(super) fn reset(&self, _key: &Key) {}

    pub(super) fn quarantined(&self, _key: &Key, _rests: Duration) {}
}

pub(super) fn out(_limiter: &str, _shard: u64, _error: &StoreError, _others: usize) {}

pub(super) fn back(_limiter: &str, _shard: u64, _lasted: Duration, _others: usize) {}

pub(super) fn clock_set(_limiter: &str, _ahead: f64) {}

#[cfg(feature = "redis")]
pub(super) fn reconnected() {}

#[cfg(feature = "redis")]
pub(super) fn subscribed(_channel: &str, _is_subscribed: bool) {}

impl Span {
    pub(crate) const NONE: Self = Self;

    #[inline(always)]
    pub(crate) fn enter(&self) -> Entered {
        Entered
    }

    #[inline(always)]
    pub(crate) fn keep(&mut self, _entered: &Entered) {}
}
