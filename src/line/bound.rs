//! How long a waiter will wait: [`Bound`].

use tokio::time::Instant;

use super::held::Held;

/// How long a waiter will wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// As long as it takes.
    Unlimited,
    /// Until then.
    Until(Instant),
    /// Not at all.
    Now,
}

impl Bound {
    /// Whether a slot is beyond the bound, by more than the round trip that preceded it.
    pub(super) fn excludes(self, held: &Held) -> bool {
        match self {
            Self::Unlimited => false,
            Self::Until(deadline) => held.due > deadline + held.guard(),
            Self::Now => !held.at_once,
        }
    }
}
