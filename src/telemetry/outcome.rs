//! What has become of a request: [`Outcome`].

use crate::listed::listed;
use crate::store::StoreError;

listed! {
    /// What has become of a request. Spans and metrics call it the same.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Outcome {
        /// It departs.
        Granted,
        /// It would have had to wait for longer than it would.
        Limited,
        /// The line was as long as it may be.
        LineFull,
        /// The store was out for longer than it would wait.
        StoreOut,
        /// The store answered with an error that is no outage.
        StoreError,
        /// It has no key, or costs what no quota holds.
        Invalid,
        /// Its future was dropped while it waited.
        Cancelled,
    }
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
impl Outcome {
    /// What it is called; what is granted where something stands in for the store has a name of its own.
    pub(super) fn name(self, stands_in: bool) -> &'static str {
        match self {
            Self::Granted if stands_in => "stand_in",
            Self::Granted => "granted",
            Self::Limited => "limited",
            Self::LineFull => "line_full",
            Self::StoreOut => "store_out",
            Self::StoreError => "store_error",
            Self::Invalid => "invalid",
            Self::Cancelled => "cancelled",
        }
    }
}

impl From<&StoreError> for Outcome {
    fn from(error: &StoreError) -> Self {
        if error.is_outage() {
            Self::StoreOut
        } else {
            Self::StoreError
        }
    }
}
