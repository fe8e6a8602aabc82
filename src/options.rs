//! The options of a request: [`RequestOptions`].

use http::Extensions;

use crate::cost::Cost;
use crate::priority::{Priority, Share};

/// The options that a request determines itself, beside its key. Default: none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestOptions {
    pub(crate) cost: Option<Cost>,
    pub(crate) priority: Option<Priority>,
    pub(crate) share: Option<Share>,
}

impl RequestOptions {
    /// The [`Cost`], the [`Priority`] and the [`Share`] in the extensions of a request.
    pub fn of(extensions: &Extensions) -> Self {
        Self {
            cost: extensions.get().cloned(),
            priority: extensions.get().copied(),
            share: extensions.get().cloned(),
        }
    }

    /// Sets the cost.
    #[must_use]
    pub fn cost(mut self, cost: impl Into<Cost>) -> Self {
        self.cost = Some(cost.into());
        self
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets the share.
    #[must_use]
    pub fn share(mut self, share: Share) -> Self {
        self.share = Some(share);
        self
    }

    /// These options, and the others where these are not set.
    #[must_use]
    #[inline]
    pub fn or(self, others: Self) -> Self {
        Self {
            cost: self.cost.or(others.cost),
            priority: self.priority.or(others.priority),
            share: self.share.or(others.share),
        }
    }
}
