//! Nothing is counted.

use std::sync::Arc;
use std::time::Duration;

use super::{Forfeits, Outcome, Turn};
use crate::key::Key;
use crate::pauses::News;
use crate::policy::Policy;
use crate::store::{Store, StoreError};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settings {}

#[derive(Debug, Clone)]
pub(super) struct Meters;

#[derive(Debug, Default)]
pub(crate) struct Watch {}

impl Meters {
    pub(super) fn new(_settings: Settings, _policy: &Policy) -> Self {
        Self
    }

    pub(super) fn stand_in(&self) -> Self {
        Self
    }

    pub(super) fn none() -> Self {
        Self
    }

    pub(super) fn watch(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        store.clone()
    }

    #[inline(always)]
    pub(super) fn ended(&self, _key: &Key, _cost: u32, _outcome: Outcome, _waited: Duration) {}

    #[inline(always)]
    pub(super) fn remembered(&self) {}

    #[inline(always)]
    pub(super) fn waiting(&self, _key: &Key, _more: f64) {}

    #[inline(always)]
    pub(super) fn lines(&self, _more: f64) {}

    pub(super) fn forfeited(&self, _forfeits: Forfeits, _guard: Duration) {}

    pub(super) fn guard(&self, _guard: Duration) {}

    pub(super) fn paused(&self, _news: News) {}

    pub(super) fn quarantined(&self, _keys: usize) {}
}

#[derive(Debug)]
pub(super) struct OfStore;

impl OfStore {
    pub(super) fn new(_policy: Arc<str>) -> Self {
        Self
    }

    pub(super) fn none() -> Self {
        Self
    }

    pub(super) fn turned(&self, _turn: &Turn<'_>) {}
}

impl Watch {
    #[inline(always)]
    pub(crate) fn answered<T>(&mut self, _answer: &Result<T, StoreError>) {}
}

#[cfg(feature = "redis")]
#[derive(Debug)]
pub(super) struct OfRedis;

#[cfg(feature = "redis")]
impl OfRedis {
    pub(super) fn new() -> Self {
        Self
    }

    pub(super) fn called_for(&self, _keys: usize) {}

    pub(super) fn reconnected(&self) {}
}
