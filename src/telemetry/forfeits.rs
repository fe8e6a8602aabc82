//! Permits that were forfeited under a lock, to be told of without it: [`Forfeits`].

use std::time::Duration;

use tokio::time::Instant;

/// How many permits were forfeited, and how late the latest came.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Forfeits {
    pub(super) count: u64,
    pub(super) late: Duration,
}

impl Forfeits {
    /// One more, which had expired by then.
    pub(crate) fn add(&mut self, expired: Instant, now: Instant) {
        self.count += 1;
        self.late = self.late.max(now.saturating_duration_since(expired));
    }

    /// Those that nobody has been told of.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.count == 0
    }
}
