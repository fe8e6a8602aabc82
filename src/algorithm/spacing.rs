//! Spacing: every request at least one interval after the one before it.
//!
//! The state is one number: the time from which the next request may depart.

use super::number::Number;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spacing(pub(super) Number);

impl Spacing {
    pub(super) fn new(interval: u64) -> Self {
        Self(Number::new(interval))
    }

    pub(super) fn earliest(&self, x: u64, _cost: u32) -> u64 {
        x.max(self.0.time)
    }

    pub(super) fn remaining(&self, now: u64) -> u32 {
        u32::from(self.0.time <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_until_the_interval_has_passed() {
        let mut spacing = Spacing::new(100);
        spacing.0.take(10, 1);
        assert_eq!(spacing.earliest(20, 1), 110);
        assert_eq!(spacing.earliest(109, 1), 110);
        assert_eq!(spacing.earliest(110, 1), 110);
        assert_eq!(spacing.earliest(111, 1), 111);
    }

    #[test]
    fn keeps_as_many_intervals_free_as_the_request_costs() {
        let mut spacing = Spacing::new(100);
        spacing.0.take(10, 3);
        assert_eq!(spacing.earliest(20, 1), 310);
    }
}
