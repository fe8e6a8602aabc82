//! How a limiter stands with its store: [`Health`].

use tokio::time::Instant;

use crate::store::StoreError;

/// How a limiter stands with its store; see [`Limiter::health`](crate::Limiter::health).
#[derive(Debug, Clone)]
pub struct Health {
    parts_out: usize,
    out: Option<(Instant, StoreError)>,
}

impl Health {
    pub(super) fn new(parts_out: usize, out: Option<(Instant, StoreError)>) -> Self {
        Self { parts_out, out }
    }

    /// Whether the store is out, or a part of it: then the [outage policy](crate::Outage) holds, for the keys
    /// of that part.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.out.is_some()
    }

    /// Since when; if several parts are out, the first of them.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        self.out.as_ref().map(|(since, _)| *since)
    }

    /// What the last call, or the last request for a sign of life, has failed with.
    #[must_use]
    pub fn error(&self) -> Option<&StoreError> {
        self.out.as_ref().map(|(_, error)| error)
    }

    /// How many [parts](crate::store::Store::part) of the store are out, of those that were asked: at most 1,
    /// but for a cluster, whose servers are its parts, and slots that move from one to another.
    #[must_use]
    pub fn parts_out(&self) -> usize {
        self.parts_out
    }
}
