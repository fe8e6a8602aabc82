//! The generic cell rate algorithm, virtual scheduling form (ITU-T I.371, annex A).
//!
//! The state is the theoretical arrival time: when the next request would come if all came evenly.
//! A request may come as much earlier as the tolerance says.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gcra {
    interval: u64,
    tolerance: u64,
    arrival: u64,
}

impl Gcra {
    pub(super) fn new(interval: u64, tolerance: u64) -> Self {
        Self {
            interval,
            tolerance,
            arrival: 0,
        }
    }

    pub(super) fn earliest(&self, x: u64, cost: u32) -> u64 {
        let last_unit = self.arrival + self.interval * u64::from(cost - 1);
        x.max(last_unit.saturating_sub(self.tolerance))
    }

    pub(super) fn take(&mut self, record: u64, cost: u32) -> Option<u64> {
        let before = self.arrival;
        self.arrival = self.after(before, record, cost);
        Some(before)
    }

    pub(super) fn is_last(&self, record: u64, cost: u32, before: Option<u64>) -> bool {
        before.is_some_and(|before| self.after(before, record, cost) == self.arrival)
    }

    pub(super) fn restore(&mut self, before: Option<u64>) {
        self.arrival = before.unwrap_or(self.arrival);
    }

    pub(super) fn remaining(&self, now: u64) -> u32 {
        let burst = self.tolerance / self.interval + 1;
        let free = match (now + self.tolerance).checked_sub(self.arrival) {
            Some(early) => (early / self.interval + 1).min(burst),
            None => 0,
        };
        u32::try_from(free).unwrap_or(u32::MAX)
    }

    pub(super) fn expires(&self) -> u64 {
        self.arrival
    }

    fn after(&self, before: u64, record: u64, cost: u32) -> u64 {
        before.max(record) + self.interval * u64::from(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lets_a_burst_go_and_then_one_per_interval() {
        let mut gcra = Gcra::new(100, 200);
        for _ in 0..3 {
            assert_eq!(gcra.earliest(1_000, 1), 1_000);
            gcra.take(1_000, 1);
        }
        assert_eq!(gcra.earliest(1_000, 1), 1_100);
        assert_eq!(gcra.earliest(1_099, 1), 1_100);
        assert_eq!(gcra.earliest(1_101, 1), 1_101);
    }

    #[test]
    fn lets_a_request_worth_the_whole_burst_go_at_once() {
        let mut gcra = Gcra::new(100, 200);
        assert_eq!(gcra.earliest(1_000, 3), 1_000);
        gcra.take(1_000, 3);
        assert_eq!(gcra.earliest(1_000, 1), 1_100);
        assert_eq!(gcra.earliest(1_000, 3), 1_300);
    }

    #[test]
    fn counts_what_remains() {
        let mut gcra = Gcra::new(100, 200);
        assert_eq!(gcra.remaining(1_000), 3);
        gcra.take(1_000, 2);
        assert_eq!(gcra.remaining(1_000), 1);
        assert_eq!(gcra.remaining(1_099), 1);
        assert_eq!(gcra.remaining(1_100), 2);
    }
}
