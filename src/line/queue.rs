//! Who waits for one key, and which slots they hold: [`Queue`], without time of its own or I/O.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::ask::LARGEST_CALL;
use super::bound::Bound;
use super::held::Held;
use super::out::Out;
use super::segment::{List, Node, Phase, Segment};
use crate::clock::Offset;
use crate::denial::Refused;
use crate::guard::Guard;
use crate::permit::Limited;
use crate::store::{Notice, Slot, StoreError};
use crate::telemetry::Forfeits;

/// Waiters in their order of arrival, in segments of like cost; those whose slots have come, on a
/// list of their own; and slots that nobody wants.
///
/// All methods push the wakers of those who have to look again to `wakes`, for the caller to wake
/// once it holds no lock.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(super) nodes: Slab<Node>,
    pub(super) segments: VecDeque<Segment>,
    /// What the first segment is called; the others follow.
    pub(super) first_segment: u64,
    pub(super) due: List,
    /// The slots of those whose slots have come.
    pub(super) due_slots: Slab<Held>,
    /// Until when the first of them may keep the others behind it: for a third of the guard.
    pub(super) patience: Option<Instant>,
    pub(super) surplus: Vec<Slot>,
    /// When the life of the state began that all of them were taken from which are held, where recovery is strict.
    pub(super) life: u64,
    /// Whether a call that asks for slots is in flight.
    pub(super) asking: bool,
    /// Until when the next is put off, so that more share it.
    pub(super) gathering: Option<Instant>,
    /// About how many want slots by then.
    pub(super) gathered: usize,
    /// Since when, whatever has changed meanwhile.
    pub(super) put_off_since: Option<Instant>,
    /// How many calls have asked for slots, and how many had when something was heard last.
    pub(super) calls: u64,
    pub(super) heard_at: u64,
    /// How many calls had asked when the end of a pause was heard of that is none any more: by what was known then.
    pub(super) outdated: u64,
    /// What was said of slots that are held.
    pub(super) heard: Notice,
    /// Until when others give slots back, as a pause is over.
    pub(super) settling: Option<Instant>,
    /// Whether something may have been said that was not heard.
    pub(super) missed: bool,
    /// When to look whether something was said.
    pub(super) next_look: Option<Instant>,
    /// Who waits for the store, while it is out.
    pub(super) out: Option<Out>,
    /// Whether that may be over.
    pub(super) looks_again: bool,
    /// When to look whether the key is in another part of the store meanwhile.
    pub(super) moves_at: Option<Instant>,
    /// Whether the store is to be put to the test, if it may have lost anything.
    pub(super) tests: bool,
    /// Whether recovery is strict: then nobody uses what is held who has not heard from the store for long; and
    /// when it was heard from last.
    pub(super) is_strict: bool,
    pub(super) assured: Option<Instant>,
    /// Whether slots that have come are not used as it was not, for too long.
    pub(super) is_blocked: bool,
    /// How many calls there had been when something may have been lost that nobody was told of, until the answer to
    /// a later one.
    pub(super) untested: Option<u64>,
    /// The last arrival.
    pub(super) newest: Option<u64>,
    /// By which of the store's clocks slots are read, and how closely it was known when all of them were.
    pub(super) clock: u64,
    pub(super) known: Duration,
    /// When the driver is going to look without being woken.
    pub(super) planned: Option<Instant>,
    pub(super) guard: Arc<Guard>,
    /// To be told of without a lock.
    pub(super) forfeits: Forfeits,
}

/// Which waiter: its place may be another's later, its arrival never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaiterId {
    pub(super) index: usize,
    pub(super) arrival: u64,
}

/// Why a waiter gets no slot.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    /// The wait would exceed its bound.
    TooLong(Limited),
    /// The same, by the word of the store.
    Denied(Refused),
    /// The store did not answer.
    Store(StoreError),
    /// Nor is it to wait for the store, as something stands in.
    Leave(StoreError),
    /// It is to wait elsewhere.
    Evicted,
}

impl WaiterId {
    pub(crate) fn arrival(self) -> u64 {
        self.arrival
    }
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
            due_slots: Slab::new(),
            patience: None,
            surplus: Vec::new(),
            life: 0,
            asking: false,
            gathering: None,
            gathered: 0,
            put_off_since: None,
            calls: 0,
            heard_at: 0,
            outdated: 0,
            heard: Notice::default(),
            settling: None,
            missed: false,
            next_look: None,
            out: None,
            looks_again: false,
            moves_at: None,
            tests: false,
            is_strict: false,
            assured: None,
            is_blocked: false,
            untested: None,
            newest: None,
            clock: 0,
            known: Duration::MAX,
            planned: None,
            guard,
            forfeits: Forfeits::default(),
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether nobody waits, nothing has to be given back, and no answer is to come.
    pub(crate) fn is_idle(&self) -> bool {
        self.nodes.is_empty() && self.surplus.is_empty() && !self.asking
    }

    /// Whether the driver has something to do other than what it waits for anyway.
    pub(crate) fn wants_driver(&self) -> bool {
        let is_sooner = |at| self.planned.is_none_or(|planned| at < planned);
        self.is_idle()
            || self.missed
            || self.is_unseen()
            || !self.surplus.is_empty()
            || self.wants_to_ask()
            || self.next_event().is_some_and(is_sooner)
    }

    /// Whether the next call is to be made at once.
    pub(crate) fn wants_to_ask(&self) -> bool {
        let mut segments = self.segments.iter();
        !self.asking
            && !self.is_out()
            && self.gathering.is_none()
            && self.settling.is_none()
            && segments.any(Segment::wants_slots)
    }

    /// The slots to be given back in one call, in the order in which they were handed out, as that
    /// is least work for the store.
    pub(crate) fn take_surplus(&mut self) -> Vec<Slot> {
        self.surplus
            .sort_unstable_by_key(|slot| (slot.at, slot.record));
        let rest = self.surplus.len().min(LARGEST_CALL);
        let rest = self.surplus.split_off(rest);
        std::mem::replace(&mut self.surplus, rest)
    }

    /// Lets a waiter join at the end, with an arrival beyond all others'.
    pub(crate) fn push(&mut self, arrival: u64, cost: u32, bound: Bound) -> WaiterId {
        self.newest = Some(arrival);
        if self
            .segments
            .back()
            .is_none_or(|segment| segment.cost != cost)
        {
            self.segments.push_back(Segment::new(cost));
        }
        self.gathered += 1;
        if bound != Bound::Unlimited || self.gathered >= LARGEST_CALL {
            // It may be refused, and is to know that at once; or the call is full.
            self.gathering = None;
            if bound == Bound::Now {
                self.settling = None;
            }
        }
        let place = self.segments.len() - 1;
        let node = Node::new(arrival, cost, bound, self.first_segment + place as u64);
        let index = self.nodes.insert(node);
        self.segments[place].push_back(&mut self.nodes, index);
        WaiterId { index, arrival }
    }

    /// Who is to be woken when there is something for a waiter to see.
    pub(crate) fn set_waker(&mut self, id: WaiterId, waker: &Waker) {
        self.nodes[id.index].waker = Some(waker.clone());
    }

    pub(crate) fn forget_waker(&mut self, id: WaiterId) {
        self.nodes[id.index].waker = None;
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
                    return Poll::Ready(Err(*refusal));
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
                self.remove_waiting(index, segment, now, wakes);
                self.nodes.remove(index);
            }
            Phase::Due { .. } => {
                let held = self.leave_due(index, now, wakes);
                self.nodes.remove(index);
                if let Some(held) = held {
                    self.give(held, now, wakes);
                }
            }
            Phase::Refused(_) => {
                self.nodes.remove(index);
            }
        }
    }

    /// Takes a slot that has come and was not used: for the front waiter, if there is time left.
    pub(crate) fn give(&mut self, held: Held, now: Instant, wakes: &mut Wakes) {
        self.drop_empty_segments();
        // Its slot has come: nothing is void there but by a pause.
        let is_void =
            held.slot.at < self.heard.paused && self.heard.voids(held.slot.at, held.reserved);
        match self.segments.front_mut() {
            Some(front)
                if front.cost == held.slot.cost
                    && now < held.expires
                    && !is_void
                    && held.life == self.life =>
            {
                front.add_slot(held);
                self.settle(0, now, wakes);
            }
            _ => self.give_back(held),
        }
    }

    /// Gives a slot back, unless what it was taken from is no more.
    pub(super) fn give_back(&mut self, held: Held) {
        if held.life == self.life {
            self.surplus.push(held.slot);
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
        self.gathering = None;
        self.planned = None;
        wakes.extend(
            self.nodes
                .iter_mut()
                .filter_map(|(_, node)| node.waker.take()),
        );
    }

    /// Nobody will be served any more.
    pub(crate) fn fail_all(&mut self, error: &StoreError, wakes: &mut Wakes) {
        for segment in std::mem::take(&mut self.segments) {
            self.surplus.extend(segment.into_slots());
        }
        for (_, node) in &mut self.nodes {
            if let Phase::Waiting { .. } = node.phase {
                node.phase = Phase::Refused(Box::new(Refusal::Store(error.clone())));
                wakes.extend(node.waker.take());
            }
        }
    }

    /// The last slot that is held.
    pub(super) fn last_slot(&self) -> Option<&Held> {
        self.segments.iter().rev().find_map(Segment::last_slot)
    }

    pub(super) fn next_event(&self) -> Option<Instant> {
        let front = self.segments.iter().find(|segment| !segment.is_empty());
        let slot = front.and_then(Segment::next_slot).map(|held| held.due);
        // What may not be used does not wake the driver: the answer to a test does.
        let slot = slot.filter(|_| !self.is_blocked);
        let others = [
            self.patience,
            self.gathering,
            self.next_look,
            self.next_test(),
            self.settling,
            self.next_to_give_up(),
            self.moves_at,
        ];
        slot.into_iter().chain(others.into_iter().flatten()).min()
    }

    pub(super) fn refuse(
        &mut self,
        index: usize,
        refusal: Refusal,
        now: Instant,
        wakes: &mut Wakes,
    ) {
        if let Phase::Waiting { segment, .. } = self.nodes[index].phase {
            self.remove_waiting(index, segment, now, wakes);
        }
        self.nodes[index].phase = Phase::Refused(Box::new(refusal));
        wakes.extend(self.nodes[index].waker.take());
    }

    fn remove_waiting(&mut self, index: usize, segment: u64, now: Instant, wakes: &mut Wakes) {
        let place = (segment - self.first_segment) as usize;
        self.segments[place].remove(&mut self.nodes, index);
        self.settle(place, now, wakes);
    }

    /// The store's clock is known this closely now: if that is worth while, all slots are read anew.
    pub(super) fn read_by(&mut self, offset: &Offset) {
        const WORTH_WHILE: Duration = Duration::from_millis(1);
        let known = offset.uncertainty();
        if self.clock != offset.clock() {
            // It says nothing of the slots that are held.
            (self.clock, self.known) = (offset.clock(), known);
        } else if known + WORTH_WHILE < self.known {
            self.known = known;
            let slots = self.segments.iter_mut().flat_map(Segment::slots_mut);
            slots.for_each(|held| held.read_by(offset));
        }
    }

    /// Hands on all slots that nobody has, and gives back those that nobody may have.
    pub(super) fn settle_all(&mut self, now: Instant, wakes: &mut Wakes) {
        for place in 0..self.segments.len() {
            self.settle(place, now, wakes);
        }
        self.clear_behind();
    }

    /// Hands on the slots of a segment that nobody has.
    pub(super) fn settle(&mut self, place: usize, now: Instant, wakes: &mut Wakes) {
        let settled = self.segments[place].settle(&mut self.nodes, now);
        let surplus = settled.surplus.into_iter().map(|held| held.slot);
        self.surplus.extend(surplus);
        for (index, limited) in settled.refused {
            let refusal = Box::new(Refusal::TooLong(limited));
            self.nodes[index].phase = Phase::Refused(refusal);
            wakes.extend(self.nodes[index].waker.take());
        }
    }

    pub(super) fn segment(&mut self, segment: u64) -> Option<&mut Segment> {
        let place = segment.checked_sub(self.first_segment)?;
        self.segments.get_mut(usize::try_from(place).ok()?)
    }

    pub(super) fn drop_empty_segments(&mut self) {
        while self.segments.front().is_some_and(Segment::is_empty) {
            self.segments.pop_front();
            self.first_segment += 1;
        }
    }
}
