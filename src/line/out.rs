//! Who waits while the store is out, and for how long.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::ask::Asked;
use super::bound::Bound;
use super::queue::{Queue, Refusal, Wakes};
use super::segment::{Phase, Segment};
use crate::store::StoreError;

/// How long those wait for the store who would wait for a slot as long as it takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Those who come within so short a time have the same patience.
const TOGETHER: Duration = Duration::from_millis(50);

/// The store has not answered, and nobody has got a slot since.
#[derive(Debug, Clone)]
pub(super) struct Out {
    error: StoreError,
    /// Whether a call was lost that may have recorded slots.
    is_unknown: bool,
    /// Up to which arrival all have been seen to; none if somebody has come back since, or lost a slot.
    pub(super) seen: Option<u64>,
    /// The first moment at which the bound of somebody ends who has no slot.
    next_bound: Option<Instant>,
    /// Up to which arrival those who have no bound wait until when.
    unbound: VecDeque<(u64, Instant)>,
}

impl Out {
    /// Somebody has come who has no bound.
    fn keep(&mut self, arrival: u64, now: Instant) {
        let until = now + PATIENCE;
        match self.unbound.back_mut() {
            Some((last, at)) if until < *at + TOGETHER => *last = arrival.max(*last),
            _ => self.unbound.push_back((arrival, until)),
        }
    }

    fn next(&self) -> Option<Instant> {
        let unbound = self.unbound.front().map(|(_, until)| *until);
        self.next_bound.into_iter().chain(unbound).min()
    }
}

impl Queue {
    /// The store is out. Those without a slot wait for it as long as they would, or leave at once, for
    /// whatever stands in.
    pub(crate) fn out(&mut self, error: &StoreError, leave: bool, now: Instant, wakes: &mut Wakes) {
        self.gathering = None;
        self.put_off_since = None;
        self.settles(now);
        if leave {
            self.refuse_without_slot(&Refusal::Leave(error.clone()), wakes, |_, _| true);
            return;
        }
        let out = self.out.get_or_insert_with(|| Out {
            error: error.clone(),
            is_unknown: false,
            seen: None,
            next_bound: None,
            unbound: VecDeque::new(),
        });
        out.error = error.clone();
        if out.seen == self.newest {
            return;
        }
        let seen = std::mem::replace(&mut out.seen, self.newest);
        let mut are_any_now = false;
        let segments = self.segments.iter().rev();
        let newest_first = segments.flat_map(|segment| segment.newest_without_slot(&self.nodes));
        for index in newest_first {
            let node = &self.nodes[index];
            if seen.is_some_and(|seen| node.arrival <= seen) {
                break;
            }
            match node.bound {
                Bound::Now => are_any_now = true,
                Bound::Until(until) => {
                    out.next_bound = Some(out.next_bound.map_or(until, |it| it.min(until)));
                }
                Bound::Unlimited => out.keep(node.arrival, now),
            }
        }
        if are_any_now {
            let refusal = Refusal::Store(error.clone());
            self.refuse_without_slot(&refusal, wakes, |bound, _| bound == Bound::Now);
        }
    }

    /// The call that asked for these has failed, because the store is out.
    pub(crate) fn lost(
        &mut self,
        asked: &Asked,
        error: &StoreError,
        leave: bool,
        now: Instant,
        wakes: &mut Wakes,
    ) {
        self.asking = false;
        for id in asked.waiters() {
            if self.is_without_slot(id) && self.nodes[id.index].bound == Bound::Now {
                self.refuse(id.index, Refusal::Store(error.clone()), now, wakes);
            }
        }
        self.out(error, leave, now, wakes);
        if let Some(out) = &mut self.out {
            out.is_unknown |= error.is_outcome_unknown();
        }
    }

    /// Refuses those who have waited for the store as long as they would.
    pub(super) fn give_up(&mut self, now: Instant, wakes: &mut Wakes) {
        let Some(out) = &mut self.out else { return };
        if out.next().is_none_or(|next| now < next) {
            return;
        }
        let mut given_up = None;
        while let Some((arrival, _)) = out.unbound.front().filter(|(_, until)| *until <= now) {
            given_up = Some(*arrival);
            out.unbound.pop_front();
        }
        let error = if out.is_unknown {
            out.error.clone().outcome_unknown()
        } else {
            out.error.clone()
        };
        let refusal = Refusal::Store(error);
        self.refuse_without_slot(&refusal, wakes, |bound, arrival| match bound {
            Bound::Now => true,
            Bound::Until(until) => until <= now,
            Bound::Unlimited => given_up.is_some_and(|given_up| arrival <= given_up),
        });
        let without_slot =
            |segment: &Segment| segment.without_slot(&self.nodes).collect::<Vec<_>>();
        let waiting = self.segments.iter().flat_map(without_slot);
        let bounds = waiting.filter_map(|index| match self.nodes[index].bound {
            Bound::Until(until) => Some(until),
            Bound::Now | Bound::Unlimited => None,
        });
        let next_bound = bounds.min();
        if let Some(out) = &mut self.out {
            out.next_bound = next_bound;
        }
    }

    /// When somebody has waited for the store as long as it would.
    pub(super) fn next_to_give_up(&self) -> Option<Instant> {
        self.out.as_ref()?.next()
    }

    /// The store may be back, or there is nobody who asks whether it is: the driver is to look.
    pub(crate) fn look_again(&mut self) {
        self.looks_again = self.out.is_some();
    }

    /// Whether the driver is not to ask, for all that the queue knows.
    pub(super) fn is_out(&self) -> bool {
        self.out.is_some() && !self.looks_again
    }

    /// Whether somebody has come of whom the driver does not know yet that the store is out.
    pub(super) fn is_unseen(&self) -> bool {
        self.out.as_ref().is_some_and(|out| out.seen != self.newest)
    }

    /// All who wait are to go elsewhere, and give back the slots that they hold.
    pub(crate) fn evict(&mut self, wakes: &mut Wakes) {
        for segment in std::mem::take(&mut self.segments) {
            self.first_segment += 1;
            self.surplus.extend(segment.into_slots());
        }
        for (_, node) in &mut self.nodes {
            if let Phase::Waiting { .. } = node.phase {
                node.phase = Phase::Refused(Box::new(Refusal::Evicted));
                wakes.extend(node.waker.take());
            }
        }
    }

    fn refuse_without_slot(
        &mut self,
        refusal: &Refusal,
        wakes: &mut Wakes,
        is_refused: impl Fn(Bound, u64) -> bool,
    ) {
        for segment in &mut self.segments {
            let refused: Vec<_> = segment
                .without_slot(&self.nodes)
                .filter(|&index| is_refused(self.nodes[index].bound, self.nodes[index].arrival))
                .collect();
            for index in refused {
                segment.remove(&mut self.nodes, index);
                let node = &mut self.nodes[index];
                node.phase = Phase::Refused(Box::new(refusal.clone()));
                wakes.extend(node.waker.take());
            }
        }
    }
}
