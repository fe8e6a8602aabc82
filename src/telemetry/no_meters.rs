//! Nothing is counted.

use std::sync::Arc;
use std::time::Duration;

use super::{Operation, Outcome};
use crate::error::StoreError;
use crate::key::Key;
use crate::policy::Policy;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settings {}

#[derive(Debug, Clone)]
pub(super) struct Meters;

impl Meters {
    pub(super) fn new(_settings: Settings, _policy: &Policy) -> Self {
        Self
    }

    #[inline(always)]
    pub(super) fn ended(&self, _key: &Key, _cost: u32, _outcome: Outcome, _waited: Duration) {}

    #[inline(always)]
    pub(super) fn remembered(&self) {}

    #[inline(always)]
    pub(super) fn waiting(&self, _key: &Key, _more: f64) {}

    #[inline(always)]
    pub(super) fn queues(&self, _more: f64) {}

    pub(super) fn missed(&self, _guard: Duration) {}

    pub(super) fn guard(&self, _guard: Duration) {}

    pub(super) fn paused(&self) {}

    pub(super) fn quarantined(&self) {}
}

#[derive(Debug)]
pub(super) struct OfStore;

impl OfStore {
    pub(super) fn new(_limiter: Arc<str>) -> Self {
        Self
    }

    pub(super) fn out(&self, _others: usize) {}

    pub(super) fn back(&self) {}

    pub(super) fn called<T>(
        &self,
        _operation: Operation,
        _keys: usize,
        _result: &Result<T, StoreError>,
        _took: Duration,
    ) {
    }

    pub(super) fn asked(&self, _requests: u64, _returned: usize) {}
}

#[cfg(feature = "redis")]
pub(super) fn reconnected() {}
