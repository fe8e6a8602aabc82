//! The span of a request, by the crate `tracing`.

use std::time::Duration;

use tracing::span::EnteredSpan;

use super::{Outcome, TARGET};
use crate::key::Key;

/// The span of a request that waits, if a subscriber wants it. It is a pointer, as requests are moved.
#[derive(Debug)]
pub(crate) struct Span(Option<Box<tracing::Span>>);

/// Inside of the span of a request, if a subscriber wants it, until this is dropped.
pub(crate) type Entered = Option<EnteredSpan>;

/// Begins the span of a request, unless the policy is exempt. If no subscriber wants spans of this level, this reads one
/// atomic number.
pub(super) fn begin(policy: &str, is_exempt: bool, key: &Key, cost: u32) -> Entered {
    if is_exempt {
        return None;
    }
    let span = tracing::debug_span!(
        target: TARGET,
        "throttle",
        key = key.as_str(),
        policy,
        cost,
        wait = tracing::field::Empty,
        outcome = tracing::field::Empty,
    );
    (!span.is_disabled()).then(|| span.entered())
}

/// Records the end of a request.
pub(super) fn end(entered: &Entered, outcome: Outcome, waited: Duration) {
    if let Some(span) = entered {
        span.record("wait", waited.as_secs_f64());
        span.record("outcome", outcome.name());
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
