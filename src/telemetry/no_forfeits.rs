//! Nobody is told of them.

use tokio::time::Instant;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Forfeits {}

impl Forfeits {
    #[inline(always)]
    pub(crate) fn add(&mut self, _expired: Instant, _now: Instant) {}

    #[inline(always)]
    pub(crate) fn take(&mut self) -> Self {
        Self {}
    }

    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        true
    }
}
