//! The span of a request, by the crate `tracing`.

use std::time::Duration;

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing::span::EnteredSpan;

use super::{Outcome, TARGET};
use crate::key::Key;

/// The span of a request, if a subscriber wants it. It is a pointer, as requests are moved.
#[derive(Debug, Default)]
pub(crate) struct Span(Option<Box<tracing::Span>>);

impl Span {
    /// Begins the span of a request. If no subscriber wants spans of this level, this reads one atomic number.
    pub(super) fn begin(policy: &str, key: &Key, cost: u32) -> Self {
        // The feature `log` of tracing, which other crates may set, makes spans without a subscriber expensive.
        if LevelFilter::current() < Level::DEBUG {
            return Self::default();
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
        Self((!span.is_disabled()).then(|| Box::new(span)))
    }

    /// Enters the span until the result is dropped.
    #[inline]
    pub(crate) fn enter(&self) -> Option<EnteredSpan> {
        let span = self.0.as_ref()?;
        Some(tracing::Span::clone(span).entered())
    }

    /// Records the end of the request.
    pub(super) fn end(self, outcome: Outcome, waited: Duration) {
        if let Some(span) = self.0 {
            span.record("wait", waited.as_secs_f64());
            span.record("outcome", outcome.name());
        }
    }
}
