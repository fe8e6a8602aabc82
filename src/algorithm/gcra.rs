//! The generic cell rate algorithm, virtual scheduling form (ITU-T I.371, annex A).
//!
//! The state is the theoretical arrival time: when the next request would come if all came evenly.
//! A request may come as much earlier as the tolerance says.

use super::ledger::Receipt;
use super::number::Number;
use super::{Count, Taken};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gcra {
    /// The theoretical arrival time.
    pub(super) arrival: Number,
    tolerance: u64,
}

impl Gcra {
    pub(super) fn new(interval: u64, tolerance: u64) -> Self {
        Self {
            arrival: Number::new(interval),
            tolerance,
        }
    }
}

impl Count for Gcra {
    #[inline]
    fn earliest(&self, x: u64, _late: u64, cost: u32) -> u64 {
        let Number { interval, time } = self.arrival;
        let last_unit = time + interval * u64::from(cost - 1);
        x.max(last_unit.saturating_sub(self.tolerance))
    }

    #[inline]
    fn take(&mut self, taken: Taken) -> Receipt {
        self.arrival.take(taken)
    }

    fn receipts(&self) -> usize {
        1
    }

    fn is_last(&self, taken: Taken, receipt: &[u64]) -> bool {
        self.arrival.is_last(taken, receipt)
    }

    fn give_back(&mut self, taken: Taken, receipt: &[u64], _now: u64) {
        self.arrival.give_back(taken, receipt);
    }

    #[inline]
    fn remaining(&self, now: u64, late: u64) -> u32 {
        let Number { interval, time } = self.arrival;
        let latest = now + self.tolerance;
        if time > latest {
            return 0;
        }
        // One may depart; those behind it count from its record.
        let behind = latest.saturating_sub(time.max(now + late)) / interval;
        u32::try_from(behind + 1).unwrap_or(u32::MAX)
    }

    #[inline]
    fn clear(&mut self) {
        self.arrival.time = 0;
    }

    fn expires(&self) -> u64 {
        self.arrival.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(gcra: &mut Gcra, at: u64, cost: u32) {
        let taken = Taken {
            at,
            record: at,
            cost,
        };
        gcra.take(taken);
    }

    #[test]
    fn lets_a_burst_go_and_then_one_per_interval() {
        let mut gcra = Gcra::new(100, 200);
        for _ in 0..3 {
            assert_eq!(gcra.earliest(1_000, 0, 1), 1_000);
            take(&mut gcra, 1_000, 1);
        }
        assert_eq!(gcra.earliest(1_000, 0, 1), 1_100);
        assert_eq!(gcra.earliest(1_099, 0, 1), 1_100);
        assert_eq!(gcra.earliest(1_101, 0, 1), 1_101);
    }

    #[test]
    fn lets_a_request_worth_the_whole_burst_go_at_once() {
        let mut gcra = Gcra::new(100, 200);
        assert_eq!(gcra.earliest(1_000, 0, 3), 1_000);
        take(&mut gcra, 1_000, 3);
        assert_eq!(gcra.earliest(1_000, 0, 1), 1_100);
        assert_eq!(gcra.earliest(1_000, 0, 3), 1_300);
    }

    #[test]
    fn counts_what_remains() {
        let mut gcra = Gcra::new(100, 200);
        assert_eq!(
            (gcra.remaining(1_000, 1), gcra.remaining(1_000, 101)),
            (2, 1)
        );
        assert_eq!(gcra.remaining(1_000, 0), 3);
        take(&mut gcra, 1_000, 2);
        assert_eq!(gcra.remaining(1_000, 0), 1);
        assert_eq!(gcra.remaining(1_099, 0), 1);
        assert_eq!(gcra.remaining(1_100, 0), 2);
    }
}
