//! What the clones of a limiter share: [`Epoch`].

use std::fmt;
use std::sync::Arc;

use crate::clock::StoreClock;
use crate::guard::Guard;
use crate::line::Lines;
use crate::policy::Policy;
use crate::store::Store;

/// A policy, and all that serves the requests under it.
pub(crate) struct Epoch {
    pub(crate) policy: Policy,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lines: Lines,
    pub(crate) guard: Arc<Guard>,
    pub(crate) clock: StoreClock,
}

impl fmt::Debug for Epoch {
    // Lines refer back to their epoch.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policy", &self.policy.id())
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
