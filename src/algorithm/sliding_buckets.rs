//! The sliding window in buckets: at most `limit` in any window, from one count per bucket.
//!
//! Each departure counts as if it were at the end of the bucket that its record lies in. So this is
//! a [sliding window log](super::sliding_log) of coarser times, in which those that are alike are
//! one entry: never less strict than the log, and at most one bucket's length stricter. Sliding
//! windows in counters usually weigh the oldest bucket by how much of it is still inside, which lets
//! more than the limit through when its requests came late in it; here it counts in full.

use std::collections::VecDeque;

use super::ledger::Receipt;
use super::{Count, Taken};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlidingBuckets {
    limit: u64,
    window: u64,
    pub(super) width: u64,
    pub(super) buckets: VecDeque<Bucket>,
    /// The total of those buckets that have left.
    base: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) end: u64,
    /// How much departs in this bucket and those before it.
    pub(super) total: u64,
}

impl SlidingBuckets {
    pub(super) fn new(limit: u32, window: u64, width: u64) -> Self {
        Self {
            limit: limit.into(),
            window,
            width,
            buckets: VecDeque::new(),
            base: 0,
        }
    }

    fn end_of(&self, record: u64) -> u64 {
        record - record % self.width + self.width
    }

    fn total(&self) -> u64 {
        self.buckets.back().map_or(self.base, |last| last.total)
    }

    /// How much departs in the bucket in this place.
    pub(super) fn count(&self, place: usize) -> u64 {
        let before = match place.checked_sub(1) {
            Some(place) => self.buckets[place].total,
            None => self.base,
        };
        self.buckets[place].total - before
    }
}

impl Count for SlidingBuckets {
    fn trim(&mut self, now: u64) {
        while let Some(first) = self.buckets.front()
            && first.end + self.window <= now
        {
            self.base = first.total;
            self.buckets.pop_front();
        }
    }

    fn earliest(&self, x: u64, _late: u64, cost: u32) -> u64 {
        let excess = (self.total() + u64::from(cost)).saturating_sub(self.limit);
        if excess <= self.base {
            return x;
        }
        // With all up to this one gone, there is room.
        let place = self.buckets.partition_point(|it| it.total < excess);
        x.max(self.buckets[place].end + self.window)
    }

    fn last_record(&self) -> u64 {
        self.buckets.back().map_or(0, |last| last.end - self.width)
    }

    fn take(&mut self, taken: Taken) -> Receipt {
        let end = self.end_of(taken.record);
        let total = self.total() + u64::from(taken.cost);
        match self.buckets.back_mut() {
            Some(last) if last.end == end => last.total = total,
            _ => self.buckets.push_back(Bucket { end, total }),
        }
        Receipt::default()
    }

    fn is_last(&self, taken: Taken, _receipt: &[u64]) -> bool {
        let end = self.end_of(taken.record);
        self.buckets.back().is_some_and(|last| last.end == end)
            && self.count(self.buckets.len() - 1) >= taken.cost.into()
    }

    fn give_back(&mut self, taken: Taken, _receipt: &[u64], now: u64) {
        let end = self.end_of(taken.record);
        let cost = u64::from(taken.cost);
        let Ok(place) = self.buckets.binary_search_by_key(&end, |it| it.end) else {
            return;
        };
        let count = self.count(place);
        if end + self.window <= now || count < cost {
            return;
        }
        for bucket in self.buckets.range_mut(place..) {
            bucket.total -= cost;
        }
        if count == cost {
            self.buckets.remove(place);
        }
    }

    fn remaining(&self, _now: u64, _late: u64) -> u32 {
        let free = self.limit.saturating_sub(self.total() - self.base);
        u32::try_from(free).unwrap_or(u32::MAX)
    }

    fn clear(&mut self) {
        self.buckets.clear();
        self.base = 0;
    }

    fn expires(&self) -> u64 {
        self.buckets.back().map_or(0, |last| last.end + self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(buckets: &mut SlidingBuckets, record: u64, cost: u32) -> Taken {
        let taken = Taken {
            at: record,
            record,
            cost,
        };
        buckets.take(taken);
        taken
    }

    #[test]
    fn requests_count_until_a_window_after_the_end_of_their_bucket() {
        let mut buckets = SlidingBuckets::new(2, 100, 25);
        take(&mut buckets, 1_003, 1);
        assert_eq!(buckets.earliest(1_010, 0, 1), 1_010);
        take(&mut buckets, 1_024, 1);
        assert_eq!(buckets.earliest(1_030, 0, 1), 1_125);
        assert_eq!(buckets.earliest(1_124, 0, 1), 1_125);
        assert_eq!(buckets.earliest(1_126, 0, 1), 1_126);
        take(&mut buckets, 1_125, 1);
        assert_eq!(buckets.earliest(1_030, 0, 1), 1_125);
        take(&mut buckets, 1_125, 1);
        assert_eq!(buckets.earliest(1_030, 0, 1), 1_250);
        assert_eq!(buckets.buckets.len(), 2);
    }

    #[test]
    fn what_is_given_back_leaves_its_bucket() {
        let mut buckets = SlidingBuckets::new(3, 100, 25);
        let first = take(&mut buckets, 1_003, 2);
        let second = take(&mut buckets, 1_060, 1);
        assert!(buckets.is_last(second, &[]) && !buckets.is_last(first, &[]));
        assert_eq!(buckets.earliest(1_070, 0, 1), 1_125);
        buckets.give_back(first, &[], 1_070);
        buckets.give_back(first, &[], 1_070);
        assert_eq!(
            (buckets.earliest(1_070, 0, 2), buckets.buckets.len()),
            (1_070, 1)
        );
        buckets.give_back(second, &[], 1_070);
        assert_eq!((buckets.remaining(1_070, 0), buckets.expires()), (3, 0));
    }

    #[test]
    fn what_has_left_the_window_is_forgotten() {
        let mut buckets = SlidingBuckets::new(3, 100, 25);
        take(&mut buckets, 1_003, 2);
        take(&mut buckets, 1_060, 1);
        assert_eq!(buckets.remaining(1_070, 0), 0);
        buckets.trim(1_124);
        assert_eq!(buckets.remaining(1_124, 0), 0);
        buckets.trim(1_125);
        assert_eq!((buckets.remaining(1_125, 0), buckets.expires()), (2, 1_175));
        assert_eq!(buckets.earliest(1_130, 0, 3), 1_175);
    }
}
