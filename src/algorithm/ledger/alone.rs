//! One request that departs at once or not at all: what most are, where nobody waits.

use std::slice;

use super::super::{Count, each};
use super::{Ask, Burst, Counter, Ledger, Receipt, Taken, Terms, settle};

/// What became of a request that departs at once or not at all.
#[derive(Debug)]
pub(crate) struct AtOnce {
    pub(crate) now: u64,
    /// The time of the slot; or if that is later than now, when there would have been one.
    pub(crate) at: u64,
    /// Its record and receipt, if it is a slot. In whole words, and neither options nor results: to
    /// take those apart would cost more than all else here.
    pub(crate) record: u64,
    pub(crate) receipt: Receipt,
    /// How many more requests of cost 1 may depart now.
    pub(crate) remaining: u64,
    /// How long until as many may as the quotas allow at most.
    pub(crate) reset: u64,
}

impl Ledger {
    /// Answers a request that departs at `now` or not at all, as [`reserve`](Self::reserve) would.
    #[inline(always)]
    pub(crate) fn reserve_now(&mut self, now: u64, terms: &Terms, cost: u32) -> AtOnce {
        match &mut self.counters[..] {
            [counter] if self.free.is_empty() => {
                each!(counter, count => reserve_alone(count, now, terms, cost))
            }
            _ => self.reserve_jointly(now, terms, cost),
        }
    }

    fn reserve_jointly(&mut self, now: u64, terms: &Terms, cost: u32) -> AtOnce {
        self.refresh(now);
        let ask = Ask {
            count: 1,
            cost,
            max_wait: 0,
        };
        let answer = self.reserve_one(now, terms, now, &mut Burst::default(), &ask);
        let (at, record, receipt) = match answer {
            Ok(slot) => (slot.at, slot.record, slot.receipt),
            Err(wait) => (now + wait, now + wait, Receipt::default()),
        };
        AtOnce {
            now,
            at,
            record,
            receipt,
            remaining: self.remaining(now, terms).into(),
            reset: self.expires().saturating_sub(now),
        }
    }
}

/// As [`Ledger::reserve_jointly`], where there is one quota and no free slot.
#[inline(always)]
fn reserve_alone<C: Count>(count: &mut C, now: u64, terms: &Terms, cost: u32) -> AtOnce {
    count.trim(now);
    let last = count.last_record();
    let record = |at| terms.record(at, now).max(last);
    let (at, record) = settle(slice::from_ref(count), now, record, cost);
    let receipt = if at == now {
        count.take(Taken { at, record, cost })
    } else {
        Receipt::default()
    };
    let late = terms.record(now, now).max(count.last_record()) - now;
    AtOnce {
        now,
        at,
        record,
        receipt,
        remaining: count.remaining(now, late).into(),
        reset: count.expires().saturating_sub(now),
    }
}
