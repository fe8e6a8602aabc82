//! What the queue asks the store for, and what becomes of the answer.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::bound::Bound;
use super::held::{Call, hold};
use super::queue::{Queue, Refusal, WaiterId, Wakes};
use super::segment::{Phase, Segment};
use crate::algorithm::micros;
use crate::denial::Refused;
use crate::permit::Limited;
use crate::store::{Ask, Outcome, Reserved, StoreError};

/// The most requests, or slots given back, that share one call: none holds the store up for long.
pub(super) const LARGEST_CALL: usize = 2_000;

/// Those who will wait for long wait so much of it, within these bounds, until they ask: so that others
/// share the call. Who comes meanwhile to another process may get the slot before theirs.
const GATHERING_SHARE: u32 = 64;
const SHORTEST_GATHERING: Duration = Duration::from_millis(1);
const LONGEST_GATHERING: Duration = Duration::from_millis(100);

/// Who asked for slots in one call, and what the call is to say.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Asked {
    pub(super) waiters: Vec<(WaiterId, u64)>,
    pub(crate) asks: SmallVec<[Ask; 2]>,
    pub(crate) not_before: u64,
    /// Which call of the queue's it is.
    pub(super) number: u64,
}

impl Asked {
    /// Who asks.
    pub(super) fn waiters(&self) -> impl Iterator<Item = WaiterId> {
        self.waiters.iter().map(|(id, _)| *id)
    }

    /// How many requests ask.
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }
}

impl Queue {
    /// What the next call is to ask for, if anything. Until its answer is in, no other may be made.
    ///
    /// Where recovery is strict, it may be a test that asks for nothing.
    pub(crate) fn ask(&mut self, now: Instant) -> Option<Asked> {
        let is_settling = self.settles(now);
        if self.asking {
            return None;
        }
        let is_test =
            std::mem::take(&mut self.tests) && self.is_strict && self.last_slot().is_some();
        self.drop_empty_segments();
        if (is_settling || self.is_put_off(now)) && !is_test {
            return None;
        }
        // The guard of the first call may prove too short, and then all its slots are lost.
        let largest_call = if self.guard.is_measured() {
            LARGEST_CALL
        } else {
            1
        };
        let mut asked = Asked {
            waiters: Vec::new(),
            asks: SmallVec::new(),
            not_before: 0,
            number: self.calls + 1,
        };
        for (place, segment) in self.segments.iter().enumerate() {
            if asked.waiters.is_empty() && place > 0 {
                // Within a segment everyone can move up to an earlier slot, but no segment may
                // get ahead of those before it.
                let ahead = self.segments.range(..place).filter_map(Segment::last_slot);
                asked.not_before = ahead.map(|held| held.slot.at).max().unwrap_or(0);
            }
            let room = largest_call - asked.waiters.len();
            for index in segment.without_slot(&self.nodes).take(room) {
                let node = &self.nodes[index];
                let id = WaiterId {
                    index,
                    arrival: node.arrival,
                };
                asked.waiters.push((id, self.first_segment + place as u64));
                let max_wait = longest_wait(node.bound, now);
                match asked.asks.last_mut() {
                    Some(last) if last.cost == node.cost && last.max_wait == max_wait => {
                        last.count += 1;
                    }
                    _ => asked.asks.push(Ask {
                        count: 1,
                        cost: node.cost,
                        max_wait,
                    }),
                }
            }
        }
        (self.gathering, self.put_off_since) = (None, None);
        self.asking = is_test || !asked.waiters.is_empty();
        self.calls += u64::from(self.asking);
        self.asking.then_some(asked)
    }

    /// Whether the next call is for those alone who have long to wait, and may wait for others to share it.
    fn is_put_off(&mut self, now: Instant) -> bool {
        if let Some(until) = self.gathering {
            let is_put_off = now < until;
            if !is_put_off {
                self.gathering = None;
            }
            return is_put_off;
        }
        let Some(last) = self.last_slot() else {
            return false;
        };
        let gather =
            (last.due.saturating_duration_since(now) / GATHERING_SHARE).min(LONGEST_GATHERING);
        let mut waiting = 0;
        let mut waiters = self
            .segments
            .iter()
            .flat_map(|segment| segment.without_slot(&self.nodes));
        // As many as one call may take gather no further.
        let are_patient = waiters.all(|index| {
            waiting += 1;
            waiting < LARGEST_CALL && self.nodes[index].bound == Bound::Unlimited
        });
        let is_put_off = gather >= SHORTEST_GATHERING && waiting > 0 && are_patient;
        if !is_put_off {
            return false;
        }
        let until = *self.put_off_since.get_or_insert(now) + gather;
        self.gathering = (now < until).then_some(until);
        self.gathered = waiting;
        self.gathering.is_some()
    }

    /// The store has answered: those who asked have slots now, or will get none.
    pub(crate) fn answered(
        &mut self,
        asked: &Asked,
        reserved: Reserved,
        call: Call,
        wakes: &mut Wakes,
    ) {
        self.asking = false;
        self.out = None;
        if call.life < self.life && asked.number <= self.heard_at {
            // It was under way when another began.
            return;
        }
        if call.life != self.life {
            self.recall(call.life, call.received, wakes);
        }
        self.untested = self.untested.filter(|&calls| asked.number <= calls);
        self.guard
            .measured(call.received - call.sent, call.offset.uncertainty());
        self.read_by(&call.offset);
        self.heard_from(call.sent);
        let Reserved {
            now,
            outcomes,
            remaining,
            reset,
            ..
        } = reserved;
        let mut granted = Vec::with_capacity(asked.len());
        for (&(id, segment), outcome) in asked.waiters.iter().zip(outcomes) {
            match outcome {
                Outcome::Granted(slot) => granted.push((segment, slot)),
                Outcome::Refused { wait } => {
                    // Somebody ahead may have left, and with that slot the wait is short enough.
                    if self.is_without_slot(id) {
                        let wait = Duration::from_micros(wait);
                        let refused = Refused {
                            limited: Limited::new(wait, remaining, reset),
                            sent: call.sent,
                            received: call.received,
                        };
                        let refusal = Refusal::Denied(refused);
                        self.refuse(id.index, refusal, call.received, wakes);
                    }
                }
            }
        }
        for (segment, slot) in granted {
            let held = hold(slot, now, remaining, reset, call);
            // What is asked for after something was heard has taken account of it. What was asked for before may
            // have been reserved after that, if the store has not heard yet of a pause that was said here.
            let is_void = || {
                let at = held.slot.at;
                at < self.heard.paused || self.heard.voids(at, now)
            };
            let is_outdated = asked.number <= self.outdated;
            if is_outdated || asked.number <= self.heard_at && is_void() {
                self.give_back(held);
                continue;
            }
            if held.due >= held.expires {
                self.guard.forfeited(held.guard());
                self.forfeits.add(held.expires, held.due);
                self.give_back(held);
                continue;
            }
            // Who asked may have left, and others may stand there now.
            match self.segment(segment) {
                Some(segment) if segment.cost == held.slot.cost => segment.add_slot(held),
                Some(_) | None => self.surplus.push(held.slot),
            }
        }
        self.settle_all(call.received, wakes);
    }

    /// The store has answered, but by a clock that was set: nobody gets these slots, and they are not
    /// given back, as what they were taken from is about to be forgotten.
    pub(crate) fn spoiled(&mut self) {
        self.asking = false;
        self.out = None;
    }

    /// The store has not answered: those who asked will get no slot.
    pub(crate) fn failed(
        &mut self,
        asked: &Asked,
        error: &StoreError,
        now: Instant,
        wakes: &mut Wakes,
    ) {
        self.asking = false;
        // Nobody knows for how long it refuses: those who hold slots ask anew, and are told why there are none.
        self.give_up_if_deaf(now, wakes);
        for &(id, _) in &asked.waiters {
            if self.is_without_slot(id) {
                self.refuse(id.index, Refusal::Store(error.clone()), now, wakes);
            }
        }
    }

    pub(super) fn is_without_slot(&self, id: WaiterId) -> bool {
        self.nodes.get(id.index).is_some_and(|node| {
            let without = matches!(
                node.phase,
                Phase::Waiting {
                    has_slot: false,
                    ..
                }
            );
            without && node.arrival == id.arrival
        })
    }
}

/// What is left of the bound, in whole milliseconds, so that those who arrived together ask alike.
fn longest_wait(bound: Bound, now: Instant) -> u64 {
    match bound {
        Bound::Unlimited => u64::MAX,
        Bound::Until(deadline) => {
            let left = deadline.saturating_duration_since(now);
            if left < Duration::from_millis(1) {
                micros(left)
            } else {
                micros(left) / 1_000 * 1_000
            }
        }
        Bound::Now => 0,
    }
}
