//! Spacing: every request at least one interval after the one before it.
//!
//! The state is one number: the time from which the next request may depart.

use super::ledger::Receipt;
use super::number::Number;
use super::{Count, Taken};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spacing(pub(super) Number);

impl Spacing {
    pub(super) fn new(interval: u64) -> Self {
        Self(Number::new(interval))
    }
}

impl Count for Spacing {
    fn earliest(&self, x: u64, _late: u64, _cost: u32) -> u64 {
        x.max(self.0.time)
    }

    fn take(&mut self, taken: Taken) -> Receipt {
        self.0.take(taken)
    }

    fn receipts(&self) -> usize {
        1
    }

    fn is_last(&self, taken: Taken, receipt: &[u64]) -> bool {
        self.0.is_last(taken, receipt)
    }

    fn give_back(&mut self, taken: Taken, receipt: &[u64], _now: u64) {
        self.0.give_back(taken, receipt);
    }

    fn remaining(&self, now: u64, _late: u64) -> u32 {
        u32::from(self.0.time <= now)
    }

    fn clear(&mut self) {
        self.0.time = 0;
    }

    fn expires(&self) -> u64 {
        self.0.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(spacing: &mut Spacing, at: u64, cost: u32) {
        let taken = Taken {
            at,
            record: at,
            cost,
        };
        spacing.take(taken);
    }

    #[test]
    fn refuses_until_the_interval_has_passed() {
        let mut spacing = Spacing::new(100);
        take(&mut spacing, 10, 1);
        assert_eq!(spacing.earliest(20, 0, 1), 110);
        assert_eq!(spacing.earliest(109, 0, 1), 110);
        assert_eq!(spacing.earliest(110, 0, 1), 110);
        assert_eq!(spacing.earliest(111, 0, 1), 111);
    }

    #[test]
    fn keeps_as_many_intervals_free_as_the_request_costs() {
        let mut spacing = Spacing::new(100);
        take(&mut spacing, 10, 3);
        assert_eq!(spacing.earliest(20, 0, 1), 310);
    }
}
