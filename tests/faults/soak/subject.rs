//! [`Subject`]: of what a departure is.

/// Departures of the same subject count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) key: usize,
    /// The number of the quotas under which the request began.
    pub(crate) set: usize,
    /// True under strict recovery.
    pub(crate) is_strict: bool,
}

/// The positions of the quotas, the recovery and the cost in one number.
const SET: u32 = 20;
const STRICT: u32 = 28;
const COST: u32 = 32;

impl Subject {
    /// The upstream records one number for each request.
    pub(crate) fn pack(self, cost: u32) -> usize {
        self.key | self.set << SET | usize::from(self.is_strict) << STRICT | (cost as usize) << COST
    }

    /// The subject, and what the request costs.
    pub(crate) fn unpack(packed: usize) -> (Self, u64) {
        let subject = Self {
            key: packed & ((1 << SET) - 1),
            set: packed >> SET & 0xff,
            is_strict: packed >> STRICT & 1 == 1,
        };
        (subject, (packed >> COST) as u64)
    }
}
