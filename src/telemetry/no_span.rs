//! The span of a request while the feature `tracing` is off: it does nothing.

use std::time::Duration;

use super::Outcome;
use crate::key::Key;

#[derive(Debug)]
pub(crate) struct Span;

pub(crate) struct Entered;

pub(super) fn begin(_policy: &str, _is_exempt: bool, _key: &Key, _cost: u32) -> Entered {
    Entered
}

pub(super) fn end(_entered: &Entered, _outcome: Outcome, _waited: Duration) {}

impl Span {
    pub(crate) const NONE: Self = Self;

    pub(crate) fn enter(&self) -> Entered {
        Entered
    }

    pub(crate) fn keep(&mut self, _entered: &Entered) {}
}
