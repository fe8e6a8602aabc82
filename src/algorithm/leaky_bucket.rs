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

    fn take(&mut self, taken: Taken) -> Receipt {
        self.number.take(taken)
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

    fn remaining(&self, now: u64, _late: u64) -> u32 {
        u32::from(self.number.time <= now)
    }

    fn clear(&mut self) {
        self.number.time = 0;
    }

    fn expires(&self) -> u64 {
        self.number.time
    }

    /// As long as `capacity` requests of cost 1 take to leave: each its interval and margin, and what
    /// is added for the drift of clocks, a little more for each behind the one before. (What is added
    /// adds to the drift, too. That is left out: it counts from some 380 requests on, and makes two in
    /// a thousand of 5,000.)
    fn longest_wait(&self, margin: u64) -> u64 {
        let capacity = u64::from(self.capacity);
        let all = (self.number.interval + margin).saturating_mul(capacity);
        // all * capacity / (2 * DRIFT), in parts that do not overflow.
        let whole = (all / (2 * DRIFT)).saturating_mul(capacity);
        let part = all % (2 * DRIFT) * capacity / (2 * DRIFT);
        all.saturating_add(whole).saturating_add(part)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::Rule;
    use super::super::ledger::{Ask, Ledger, Outcome, Terms};
    use super::*;

    /// The slots of so many requests of cost 1, as far as they are granted.
    fn reserve(ledger: &mut Ledger, now: u64, margin: u64, count: u32) -> Vec<u64> {
        let terms = Terms::of_margin(margin);
        let ask = Ask {
            count,
            cost: 1,
            max_wait: u64::MAX,
        };
        let outcomes = ledger.reserve(now, &terms, &[ask]).into_iter();
        let slot = |outcome| match outcome {
            Outcome::Granted(slot) => Some(slot.at),
            Outcome::Refused { .. } => None,
        };
        outcomes.filter_map(slot).collect()
    }

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
            bucket.take(taken);
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
        let between = LeakyBucket::new(999, 200);
        assert_eq!(between.longest_wait(0), 199_800 + 399);
    }

    proptest! {
        #[test]
        fn holds_its_capacity_and_not_one_more(
            capacity in 1..=350_u32,
            interval in 800..3_000_000_u64,
            margin in prop_oneof![Just(0), 0..3_000_000_u64],
        ) {
            let mut ledger = Ledger::new(&[Rule::LeakyBucket { interval, capacity }]);
            let now = 1_763_000_000_000_000;
            let slots = reserve(&mut ledger, now, margin, capacity + 5);
            prop_assert_eq!((slots[0], slots.len() as u32), (now, capacity + 1));
        }

        /// Waits are too short for any drift to count, so this holds to the microsecond.
        #[test]
        fn takes_one_more_as_soon_as_fewer_than_its_capacity_wait(
            capacity in 1..=8_u32,
            interval in 1..=700_u64,
            margin in 0..=700_u64,
            calls in vec((0..=2_000_u64, 1..=12_u32), 1..50),
        ) {
            let mut ledger = Ledger::new(&[Rule::LeakyBucket { interval, capacity }]);
            let mut now = 1_763_000_000_000_000;
            let mut slots = Vec::new();
            for (advance, count) in calls {
                now += advance;
                let granted = reserve(&mut ledger, now, margin, count);
                let is_full = granted.len() < count as usize;
                slots.extend(granted);
                let waiting = slots.iter().filter(|&&at| at > now).count() as u32;
                prop_assert!(waiting <= capacity);
                prop_assert!(!is_full || waiting == capacity, "{} of {}", waiting, capacity);
            }
        }
    }
}
