//! One request that departs at once or not at all: what most are, where nobody waits.

use std::slice;

use super::super::{Count, each};
use super::{Ask, Burst, Counter, Ledger, Receipt, Slot, Taken, Terms, settle};

/// What became of a request that departs at once or not at all.
#[derive(Debug)]
pub(crate) struct AtOnce {
    /// How long the wait would have been: none, if there is a slot.
    pub(crate) wait: u64,
    /// The slot; of no meaning for a request that was refused. No [`Option`], nor part of a result:
    /// taking those apart costs more than all else here.
    pub(crate) slot: Slot,
    /// How many more requests of cost 1 may depart now.
    pub(crate) remaining: u32,
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
        let (wait, slot) = match answer {
            Ok(slot) => (0, slot),
            Err(wait) => {
                let slot = Slot {
                    at: now + wait,
                    record: now + wait,
                    cost,
                    receipt: Receipt::default(),
                };
                (wait, slot)
            }
        };
        AtOnce {
            wait,
            slot,
            remaining: self.remaining(now, terms),
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
        wait: at - now,
        slot: Slot {
            at,
            record,
            cost,
            receipt,
        },
        remaining: count.remaining(now, late),
        reset: count.expires().saturating_sub(now),
    }
}
