//! Spacing: every request at least one interval after the one before it.
//!
//! The state is one number: the time from which the next request may depart.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spacing {
    interval: u64,
    next: u64,
}

impl Spacing {
    pub(super) fn new(interval: u64) -> Self {
        Self { interval, next: 0 }
    }

    pub(super) fn earliest(&self, x: u64, _cost: u32) -> u64 {
        x.max(self.next)
    }

    pub(super) fn take(&mut self, record: u64, cost: u32) -> Option<u64> {
        let before = self.next;
        self.next = self.after(before, record, cost);
        Some(before)
    }

    pub(super) fn is_last(&self, record: u64, cost: u32, before: Option<u64>) -> bool {
        before.is_some_and(|before| self.after(before, record, cost) == self.next)
    }

    pub(super) fn restore(&mut self, before: Option<u64>) {
        self.next = before.unwrap_or(self.next);
    }

    pub(super) fn remaining(&self, now: u64) -> u32 {
        u32::from(self.next <= now)
    }

    pub(super) fn expires(&self) -> u64 {
        self.next
    }

    fn after(&self, before: u64, record: u64, cost: u32) -> u64 {
        before.max(record) + self.interval * u64::from(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_until_the_interval_has_passed() {
        let mut spacing = Spacing::new(100);
        spacing.take(10, 1);
        assert_eq!(spacing.earliest(20, 1), 110);
        assert_eq!(spacing.earliest(109, 1), 110);
        assert_eq!(spacing.earliest(110, 1), 110);
        assert_eq!(spacing.earliest(111, 1), 111);
    }

    #[test]
    fn keeps_as_many_intervals_free_as_the_request_costs() {
        let mut spacing = Spacing::new(100);
        spacing.take(10, 3);
        assert_eq!(spacing.earliest(20, 1), 310);
    }

    #[test]
    fn knows_whether_anything_was_taken_since() {
        let mut spacing = Spacing::new(100);
        let first = spacing.take(10, 1);
        assert!(spacing.is_last(10, 1, first));
        spacing.take(110, 1);
        assert!(!spacing.is_last(10, 1, first));
    }
}
