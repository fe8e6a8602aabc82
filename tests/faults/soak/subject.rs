//! [`Subject`]: of what a departure is.

/// Departures of the same subject count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) key: usize,
    /// The number of the quotas under which the request began.
    pub(crate) set: usize,
    /// Whether recovery is strict.
    pub(crate) is_strict: bool,
}

/// Where the key, the quotas and the cost stand in one number.
const SET: u32 = 20;
const STRICT: u32 = 28;
const COST: u32 = 32;

impl Subject {
    /// The upstream is told one number of each request, and minds not what it means.
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

#[test]
fn what_is_packed_comes_out_again() {
    for is_strict in [false, true] {
        let subject = Subject {
            key: 9_999,
            set: 4,
            is_strict,
        };
        assert_eq!(Subject::unpack(subject.pack(3)), (subject, 3));
    }
}
