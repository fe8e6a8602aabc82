//! Whether the store of a limiter is out: [`Health`].

use tokio::time::Instant;

use crate::error::StoreError;

/// Whether the store of a limiter is out; see [`Limiter::health`](crate::Limiter::health).
#[derive(Debug, Clone)]
pub struct Health {
    shards_out: usize,
    out: Option<(Instant, StoreError)>,
}

impl Health {
    /// `out` is the time and the error of the first shard that is out.
    pub(crate) fn new(shards_out: usize, out: Option<(Instant, StoreError)>) -> Self {
        Self { shards_out, out }
    }

    /// Whether the store is out, or a shard of it. The [outage policy](crate::Outage) then holds for the keys of that
    /// shard.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.out.is_some()
    }

    /// Since when; if several shards are out, since the first of them.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        self.out.as_ref().map(|(since, _)| *since)
    }

    /// The error of the last call or probe.
    #[must_use]
    pub fn error(&self) -> Option<&StoreError> {
        self.out.as_ref().map(|(_, error)| error)
    }

    /// How many [shards](crate::store::Store::shard) of the store are out, of those that were called: at most 1, except
    /// in a cluster, in which each server is a shard.
    #[must_use]
    pub fn shards_out(&self) -> usize {
        self.shards_out
    }
}
