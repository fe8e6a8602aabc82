//! The sliding window log: at most `limit` in any window, exactly.
//!
//! The log holds a record for every departure of the last window and for all to come, in order. A
//! request may depart one window after the record that is `limit` places before it. Known as the
//! exact form of the sliding window counter; a log that holds future entries, so that it can hand
//! out departure times rather than verdicts, is this crate's own.

use std::collections::VecDeque;

use super::ledger::Receipt;
use super::{Count, Taken};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlidingLog {
    pub(super) limit: usize,
    window: u64,
    /// Never decreasing, so that the record `limit` places back is the latest that matters.
    pub(super) records: VecDeque<u64>,
}

impl SlidingLog {
    pub(super) fn new(limit: u32, window: u64) -> Self {
        Self {
            limit: limit as usize,
            window,
            records: VecDeque::new(),
        }
    }
}

impl Count for SlidingLog {
    #[inline]
    fn trim(&mut self, now: u64) {
        while self
            .records
            .front()
            .is_some_and(|first| first + self.window <= now)
        {
            self.records.pop_front();
        }
    }

    #[inline]
    fn earliest(&self, x: u64, _late: u64, cost: u32) -> u64 {
        let after = self.records.len() + cost as usize;
        match after.checked_sub(self.limit + 1) {
            Some(place) => x.max(self.records[place] + self.window),
            None => x,
        }
    }

    #[inline]
    fn last_record(&self) -> u64 {
        self.records.back().copied().unwrap_or(0)
    }

    #[inline]
    fn take(&mut self, taken: Taken) -> Receipt {
        self.records
            .extend(std::iter::repeat_n(taken.record, taken.cost as usize));
        Receipt::default()
    }

    fn is_last(&self, taken: Taken, _receipt: &[u64]) -> bool {
        let Taken { record, cost, .. } = taken;
        let cost = cost as usize;
        self.records.len() >= cost && self.records.iter().rev().take(cost).all(|&it| it == record)
    }

    /// Removes records that equal `record`. Which of them is no matter, but none may go in the
    /// place of one that has left the log before, or was lost with the state.
    fn give_back(&mut self, taken: Taken, _receipt: &[u64], now: u64) {
        let Taken { record, cost, .. } = taken;
        if record + self.window <= now {
            return;
        }
        let first = self.records.partition_point(|&it| it < record);
        let alike = self.records.iter().skip(first).take(cost as usize);
        let count = alike.take_while(|&&it| it == record).count();
        self.records.drain(first..first + count);
    }

    #[inline]
    fn remaining(&self, _now: u64, _late: u64) -> u32 {
        let free = self.limit.saturating_sub(self.records.len());
        u32::try_from(free).unwrap_or(u32::MAX)
    }

    #[inline]
    fn clear(&mut self) {
        self.records.clear();
    }

    fn expires(&self) -> u64 {
        self.records.back().map_or(0, |last| last + self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(log: &mut SlidingLog, record: u64) -> Taken {
        let taken = Taken {
            at: record,
            record,
            cost: 1,
        };
        log.take(taken);
        taken
    }

    #[test]
    fn refuses_until_the_oldest_record_is_one_window_old() {
        let mut log = SlidingLog::new(2, 100);
        take(&mut log, 10);
        assert_eq!(log.earliest(20, 0, 1), 20);
        take(&mut log, 20);
        assert_eq!(log.earliest(20, 0, 1), 110);
        assert_eq!(log.earliest(109, 0, 1), 110);
        assert_eq!(log.earliest(111, 0, 1), 111);
        assert_eq!(log.earliest(20, 0, 2), 120);
    }

    #[test]
    fn hands_out_times_beyond_those_already_handed_out() {
        let mut log = SlidingLog::new(1, 100);
        for place in 0..5 {
            let slot = log.earliest(0, 0, 1);
            assert_eq!(slot, place * 100);
            take(&mut log, slot);
        }
    }

    #[test]
    fn gives_back_only_the_very_record() {
        let mut log = SlidingLog::new(2, 100);
        let first = take(&mut log, 10);
        let second = take(&mut log, 20);
        let stranger = Taken {
            record: 15,
            ..first
        };
        log.give_back(stranger, &[], 20);
        assert_eq!(log.earliest(20, 0, 1), 110);
        log.give_back(first, &[], 20);
        assert_eq!(log.earliest(20, 0, 1), 20);
        log.give_back(second, &[], 120);
        assert_eq!(log.records.len(), 1);
    }
}
