//! The end of a request: [`Outcome`].

/// The end of a request. Spans and metrics name it the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It departs.
    Granted,
    /// It departs while the store is out.
    Fallback,
    /// It would have had to wait for longer than its bound.
    Limited,
    /// The queue was full.
    QueueFull,
    /// The store was out for longer than it would wait.
    StoreOut,
    /// The store answered with an error that is no outage.
    StoreError,
    /// It has no key, or costs more than the quotas allow.
    Invalid,
    /// Its future was dropped while it waited.
    Cancelled,
}

/// The names of the outcomes, in the order of [`Outcome`].
pub(super) const OUTCOMES: [&str; 8] = [
    "granted",
    "fallback",
    "limited",
    "queue_full",
    "store_out",
    "store_error",
    "invalid",
    "cancelled",
];

impl Outcome {
    pub(super) fn name(self) -> &'static str {
        OUTCOMES[self as usize]
    }
}
