//! The leaky bucket as a queue: requests leave at a constant rate, and a full bucket takes no more.
//!
//! Departures are spaced; what the bucket holds are the slots to come. As with spacing, the state
//! is one number: the time at which the bucket is empty.

use super::ledger::{DRIFT, Receipt};
use super::number::Number;
use super::{Count, Taken};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeakyBucket {
    pub(super) number: Number,
    capacity: u32,
}

impl LeakyBucket {
    pub(super) fn new(interval: u64, capacity: u32) -> Self {
        Self {
            number: Number::new(interval),
            capacity,
        }
    }
}

impl Count for LeakyBucket {
    fn earliest(&self, x: u64, _late: u64, _cost: u32) -> u64 {
        x.max(self.number.time)
    }

    fn take(&mut self, taken: Taken, receipt: &mut Receipt) {
        self.number.take(taken, receipt);
    }

    fn receipts(&self) -> usize {
        1
    }

    fn is_last(&self, taken: Taken, receipt: &[u64]) -> bool {
        self.number.is_last(taken, receipt)
    }

    fn give_back(&mut self, taken: Taken, receipt: &[u64], _now: u64) {
        self.number.give_back(taken, receipt);
    }

    fn remaining(&self, now: u64) -> u32 {
        u32::from(self.number.time <= now)
    }

    fn expires(&self) -> u64 {
        self.number.time
    }

    /// As long as `capacity` requests of cost 1 take to leave: each its interval and margin, and what
    /// is added for the drift of clocks, a little more for each behind the one before.
    fn longest_wait(&self, margin: u64) -> u64 {
        let capacity = u64::from(self.capacity);
        let all = (self.number.interval + margin).saturating_mul(capacity);
        let drift = (all / (2 * DRIFT)).saturating_mul(capacity);
        all.saturating_add(drift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lets_requests_leave_at_a_constant_rate() {
        let mut bucket = LeakyBucket::new(100, 3);
        for place in 0..4 {
            let at = bucket.earliest(1_000, 10, 1);
            assert_eq!(at, 1_000 + 110 * place);
            let taken = Taken {
                at,
                record: at + 10,
                cost: 1,
            };
            bucket.take(taken, &mut Receipt::default());
        }
        assert_eq!(bucket.expires(), 1_440);
    }

    #[test]
    fn the_last_that_it_holds_waits_for_all_before_it() {
        let bucket = LeakyBucket::new(100, 3);
        assert_eq!(bucket.longest_wait(0), 300);
        assert_eq!(bucket.longest_wait(10), 330);
        let large = LeakyBucket::new(100, 1_000);
        assert_eq!(large.longest_wait(0), 100_000 + 1_000);
    }
}
