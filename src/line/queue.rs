//! Who waits for one key, and which slots they hold: [`Queue`], without time of its own or I/O.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::segment::{Bound, Held, List, Node, Phase, Segment};
use crate::algorithm::micros;
use crate::clock::Offset;
use crate::guard::Guard;
use crate::permit::Limited;
use crate::store::{Ask, DRIFT, Outcome, Reserved, Slot, StoreError};

/// The most requests that share one call, so that none holds the store up for long.
const LARGEST_CALL: usize = 2_000;

/// Waiters in their order of arrival, in segments of like cost; those whose slots have come, on a
/// list of their own; and slots that nobody wants.
///
/// All methods push the wakers of those who have to look again to `wakes`, for the caller to wake
/// once it holds no lock.
#[derive(Debug)]
pub(crate) struct Queue {
    nodes: Slab<Node>,
    segments: VecDeque<Segment>,
    /// What the first segment is called; the others follow.
    first_segment: u64,
    due: List,
    /// Until when the first of them may keep the others behind it: for a third of the guard.
    patience: Option<Instant>,
    surplus: Vec<Slot>,
    /// Whether a call that asks for slots is in flight.
    asking: bool,
    /// When the driver is going to look without being woken.
    planned: Option<Instant>,
    guard: Arc<Guard>,
}

/// Which waiter: its place may be another's later, its arrival never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaiterId {
    index: usize,
    arrival: u64,
}

/// Why a waiter gets no slot.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    /// The wait would exceed its bound.
    TooLong(Limited),
    /// The store did not answer.
    Store(StoreError),
}

impl WaiterId {
    pub(crate) fn arrival(self) -> u64 {
        self.arrival
    }
}

/// Who asked for slots in one call, and what the call is to say.
#[derive(Debug)]
pub(crate) struct Asked {
    waiters: Vec<(WaiterId, u64)>,
    pub(crate) asks: SmallVec<[Ask; 2]>,
    pub(crate) not_before: u64,
}

/// A call that was answered: when, under which terms, and what the store's clock is known to show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
    pub(crate) guard: Duration,
    /// What a departure is recorded later for besides.
    pub(crate) buffer: Duration,
    pub(crate) offset: Offset,
}

pub(crate) type Wakes = SmallVec<[Waker; 4]>;

impl Queue {
    pub(crate) fn new(guard: Arc<Guard>) -> Self {
        Self {
            nodes: Slab::new(),
            segments: VecDeque::new(),
            // Waiters that come back to the front may need segments before the first.
            first_segment: 1 << 32,
            due: List::default(),
            patience: None,
            surplus: Vec::new(),
            asking: false,
            planned: None,
            guard,
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nobody waits and nothing has to be given back.
    pub(crate) fn is_idle(&self) -> bool {
        self.nodes.is_empty() && self.surplus.is_empty()
    }

    /// Whether the driver has something to do other than what it waits for anyway.
    pub(crate) fn wants_driver(&self) -> bool {
        let wants_slots = || self.segments.iter().any(Segment::wants_slots);
        self.is_idle()
            || !self.surplus.is_empty()
            || (!self.asking && wants_slots())
            || self
                .next_event()
                .is_some_and(|at| self.planned.is_none_or(|planned| at < planned))
    }

    pub(crate) fn take_surplus(&mut self) -> Vec<Slot> {
        std::mem::take(&mut self.surplus)
    }

    /// Lets a waiter join at the end, with an arrival beyond all others'.
    pub(crate) fn push(&mut self, arrival: u64, cost: u32, bound: Bound) -> WaiterId {
        if self
            .segments
            .back()
            .is_none_or(|segment| segment.cost != cost)
        {
            self.segments.push_back(Segment::new(cost));
        }
        let place = self.segments.len() - 1;
        let node = Node::new(arrival, cost, bound, self.first_segment + place as u64);
        let index = self.nodes.insert(node);
        self.segments[place].push_back(&mut self.nodes, index);
        WaiterId { index, arrival }
    }

    /// Lets a waiter join again whose permit has expired, in its order of arrival.
    pub(crate) fn push_again(&mut self, arrival: u64, cost: u32, bound: Bound) -> WaiterId {
        let index = self
            .nodes
            .insert(Node::new(arrival, cost, bound, self.first_segment));
        self.come_back(index);
        WaiterId { index, arrival }
    }

    /// Whether the waiter may go, and with which slot; if so, it has left.
    pub(crate) fn poll(
        &mut self,
        id: WaiterId,
        cx: &mut Context<'_>,
        now: Instant,
        wakes: &mut Wakes,
    ) -> Poll<Result<Held, Refusal>> {
        let WaiterId { index, .. } = id;
        match &self.nodes[index].phase {
            Phase::Refused(_) => {
                if let Phase::Refused(refusal) = self.nodes.remove(index).phase {
                    return Poll::Ready(Err(refusal));
                }
            }
            Phase::Due { listed, .. } if !listed || self.due.head == Some(index) => {
                if let Some(held) = self.leave_due(index, now, wakes) {
                    self.nodes.remove(index);
                    self.guard.departed();
                    return Poll::Ready(Ok(held));
                }
                self.come_back(index);
            }
            Phase::Due { .. } | Phase::Waiting { .. } => {}
        }
        let waker = &mut self.nodes[index].waker;
        if waker
            .as_ref()
            .is_none_or(|waker| !waker.will_wake(cx.waker()))
        {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Lets a waiter leave; everyone behind moves up.
    pub(crate) fn leave(&mut self, id: WaiterId, now: Instant, wakes: &mut Wakes) {
        let WaiterId { index, .. } = id;
        match &self.nodes[index].phase {
            Phase::Waiting { segment, .. } => {
                let segment = *segment;
                self.remove_waiting(index, segment);
                self.nodes.remove(index);
            }
            Phase::Due { .. } => {
                let held = self.leave_due(index, now, wakes);
                self.nodes.remove(index);
                if let Some(held) = held {
                    self.give(held, now);
                }
            }
            Phase::Refused(_) => {
                self.nodes.remove(index);
            }
        }
    }

    /// Takes a slot that has come and was not used: for the front waiter, if there is time left.
    pub(crate) fn give(&mut self, held: Held, now: Instant) {
        self.drop_empty_segments();
        match self.segments.front_mut() {
            Some(front) if front.cost == held.slot.cost && now < held.expires => {
                front.add_slot(held);
                let surplus = front.settle(&mut self.nodes);
                self.surplus
                    .extend(surplus.into_iter().map(|held| held.slot));
            }
            _ => self.surplus.push(held.slot),
        }
    }

    /// What the next call is to ask for, if anything. Until its answer is in, no other may be made.
    pub(crate) fn ask(&mut self, now: Instant) -> Option<Asked> {
        if self.asking {
            return None;
        }
        self.drop_empty_segments();
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
        self.asking = !asked.waiters.is_empty();
        self.asking.then_some(asked)
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
        self.guard
            .measured(call.received - call.sent, call.offset.uncertainty());
        let Reserved {
            now,
            outcomes,
            remaining,
            reset,
        } = reserved;
        let mut granted = Vec::new();
        for (&(id, segment), outcome) in asked.waiters.iter().zip(outcomes) {
            match outcome {
                Outcome::Granted(slot) => granted.push((segment, slot)),
                Outcome::Refused { wait } => {
                    // Somebody ahead may have left, and with that slot the wait is short enough.
                    if self.is_without_slot(id) {
                        let limited = Limited {
                            delay: Duration::from_micros(wait),
                            remaining,
                            reset,
                        };
                        self.refuse(id.index, Refusal::TooLong(limited), wakes);
                    }
                }
            }
        }
        let mut overtakes = false;
        for (segment, slot) in granted {
            let held = hold(slot, now, remaining, reset, call);
            if held.due >= held.expires {
                self.guard.forfeited(held.guard);
                self.surplus.push(held.slot);
            } else if let Some(segment) = self.segment(segment) {
                overtakes |= segment.add_slot(held);
            } else {
                self.surplus.push(held.slot);
            }
        }
        self.settle();
        if overtakes {
            self.refuse_excluded(remaining, reset, call.received, wakes);
        }
    }

    /// The store has not answered: those who asked will get no slot.
    pub(crate) fn failed(&mut self, asked: &Asked, error: &StoreError, wakes: &mut Wakes) {
        self.asking = false;
        for &(id, _) in &asked.waiters {
            if self.is_without_slot(id) {
                self.refuse(id.index, Refusal::Store(error.clone()), wakes);
            }
        }
    }

    /// Lets those go whose slots have come.
    pub(crate) fn advance(&mut self, now: Instant, wakes: &mut Wakes) {
        loop {
            self.drop_empty_segments();
            let Some(front) = self.segments.front_mut() else {
                break;
            };
            let Some(next) = front.next_slot().filter(|next| next.due <= now) else {
                break;
            };
            if next.expires <= now {
                if let Some(late) = front.forfeit(&mut self.nodes) {
                    self.guard.forfeited(late.guard);
                    self.surplus.push(late.slot);
                }
                continue;
            }
            if let Some(index) = front.head()
                && self.nodes[index].bound.excludes(next)
            {
                // Those ahead of it lost their slots and moved everyone back.
                let refusal = Refusal::TooLong(Limited {
                    delay: next.due - now,
                    remaining: next.remaining,
                    reset: next.reset,
                });
                self.refuse(index, refusal, wakes);
                self.settle();
                continue;
            }
            let Some((index, held)) = front.pop(&mut self.nodes) else {
                break;
            };
            let patience = now + held.guard / 3;
            self.nodes[index].phase = Phase::Due { held, listed: true };
            self.due.push_back(&mut self.nodes, index);
            if self.due.head == Some(index) {
                self.patience = Some(patience);
                wakes.extend(self.nodes[index].waker.take());
            }
        }
        if self.patience.is_some_and(|until| now >= until) {
            self.let_all_go(wakes);
        }
    }

    /// When `advance` has something to do again, which the driver is going to see to.
    pub(crate) fn plan(&mut self) -> Option<Instant> {
        self.planned = self.next_event();
        self.planned
    }

    /// The driver is gone, and any call with it: everyone has to look who serves them.
    pub(crate) fn abandon(&mut self, wakes: &mut Wakes) {
        self.asking = false;
        self.planned = None;
        wakes.extend(
            self.nodes
                .iter_mut()
                .filter_map(|(_, node)| node.waker.take()),
        );
    }

    fn next_event(&self) -> Option<Instant> {
        let front = self.segments.iter().find(|segment| !segment.is_empty());
        let slot = front.and_then(Segment::next_slot).map(|held| held.due);
        slot.into_iter().chain(self.patience).min()
    }

    /// The first of those whose slots have come does not look; so all may go, in any order.
    fn let_all_go(&mut self, wakes: &mut Wakes) {
        while let Some(index) = self.due.head {
            self.due.remove(&mut self.nodes, index);
            if let Phase::Due { listed, .. } = &mut self.nodes[index].phase {
                *listed = false;
            }
            wakes.extend(self.nodes[index].waker.take());
        }
        self.patience = None;
    }

    /// Takes a waiter, whose slot has come, off the list, and lets the next one look; yields the
    /// slot unless it has expired.
    fn leave_due(&mut self, index: usize, now: Instant, wakes: &mut Wakes) -> Option<Held> {
        let placeholder = Phase::Waiting {
            segment: 0,
            has_slot: false,
        };
        let Phase::Due { held, listed } =
            std::mem::replace(&mut self.nodes[index].phase, placeholder)
        else {
            return None;
        };
        if listed {
            let was_first = self.due.head == Some(index);
            self.due.remove(&mut self.nodes, index);
            if was_first {
                self.patience = self.due.head.map(|_| now + held.guard / 3);
                if let Some(next) = self.due.head {
                    wakes.extend(self.nodes[next].waker.take());
                }
            }
        }
        if now >= held.expires {
            self.guard.forfeited(held.guard);
            self.surplus.push(held.slot);
            return None;
        }
        Some(held)
    }

    /// A waiter's slot has expired: it waits again, in its order of arrival.
    ///
    /// Everyone still in the segments arrived later, but for others that came back.
    fn come_back(&mut self, index: usize) {
        self.drop_empty_segments();
        let cost = self.nodes[index].cost;
        if self.segments.front().is_none_or(|front| front.cost != cost) {
            self.segments.push_front(Segment::new(cost));
            self.first_segment -= 1;
        }
        self.nodes[index].phase = Phase::Waiting {
            segment: self.first_segment,
            has_slot: false,
        };
        self.segments[0].insert(&mut self.nodes, index);
    }

    fn is_without_slot(&self, id: WaiterId) -> bool {
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

    fn refuse(&mut self, index: usize, refusal: Refusal, wakes: &mut Wakes) {
        if let Phase::Waiting { segment, .. } = self.nodes[index].phase {
            self.remove_waiting(index, segment);
        }
        self.nodes[index].phase = Phase::Refused(refusal);
        wakes.extend(self.nodes[index].waker.take());
    }

    /// Slots that came before others' have moved everyone; those beyond their bound by that leave.
    fn refuse_excluded(
        &mut self,
        remaining: u32,
        reset: Duration,
        now: Instant,
        wakes: &mut Wakes,
    ) {
        for place in 0..self.segments.len() {
            while let Some((index, held)) = self.segments[place].find_excluded(&self.nodes) {
                let refusal = Refusal::TooLong(Limited {
                    delay: held.due - now,
                    remaining,
                    reset,
                });
                self.refuse(index, refusal, wakes);
            }
        }
    }

    fn remove_waiting(&mut self, index: usize, segment: u64) {
        let place = (segment - self.first_segment) as usize;
        self.segments[place].remove(&mut self.nodes, index);
        self.settle_segment(place);
    }

    fn settle(&mut self) {
        for place in 0..self.segments.len() {
            self.settle_segment(place);
        }
    }

    fn settle_segment(&mut self, place: usize) {
        let surplus = self.segments[place].settle(&mut self.nodes);
        self.surplus
            .extend(surplus.into_iter().map(|held| held.slot));
    }

    fn segment(&mut self, segment: u64) -> Option<&mut Segment> {
        let place = segment.checked_sub(self.first_segment)?;
        self.segments.get_mut(usize::try_from(place).ok()?)
    }

    fn drop_empty_segments(&mut self) {
        while self.segments.front().is_some_and(Segment::is_empty) {
            self.segments.pop_front();
            self.first_segment += 1;
        }
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

/// Brings a slot to the local clock: nothing departs before the slot has come for certain, nor after
/// the guard may be over. Half of the drift that the store allows for is for a clock that is too
/// fast, half for one too slow.
pub(crate) fn hold(slot: Slot, now: u64, remaining: u32, reset: Duration, call: Call) -> Held {
    let wait = slot.at.saturating_sub(now);
    let drift = wait / DRIFT;
    // A slot that another has given back comes with the guard under which it was recorded.
    let recorded = Duration::from_micros(slot.record.saturating_sub(slot.at + drift));
    let guard = call.guard.min(recorded.saturating_sub(call.buffer));
    Held {
        // What was the present when the store answered has come since.
        due: match wait {
            0 => call.received,
            _ => call.offset.latest(slot.at + drift / 2),
        },
        expires: call.offset.earliest(slot.at + drift / 2) + guard,
        at_once: wait == 0,
        guard,
        remaining,
        reset,
        slot,
    }
}
