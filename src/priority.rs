//! The order among requests of one key: [`Priority`].

/// The priority of a request among those that wait for the same key, in all processes.
///
/// A request departs before all requests of lower levels, whenever these arrived. Requests of one level depart by arrival.
/// [`Acquire::priority`](crate::Acquire::priority) sets it. Default: [`Normal`](Self::Normal).
///
/// Strict priorities starve: if the requests of higher levels take the whole quota, those of lower levels wait until there
/// are fewer. Give them a [`max_wait`](crate::Acquire::max_wait) if they should fail instead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Requests before all others.
    Highest,
    /// Requests such as those of interactive users.
    High,
    /// Requests without a priority.
    #[default]
    Normal,
    /// Requests such as those of a batch job.
    Low,
    /// Requests behind all others.
    Lowest,
}

impl Priority {
    /// The names of all levels, the highest first.
    #[cfg(feature = "metrics")]
    pub(crate) const NAMES: [&str; 5] = ["highest", "high", "normal", "low", "lowest"];

    /// The level, 0 for the highest.
    pub(crate) fn level(self) -> u64 {
        self as u64
    }

    /// The priority of a level.
    #[cfg(feature = "redis")]
    pub(crate) fn of_level(level: u64) -> Self {
        match level {
            0 => Self::Highest,
            1 => Self::High,
            2 => Self::Normal,
            3 => Self::Low,
            _ => Self::Lowest,
        }
    }
}
