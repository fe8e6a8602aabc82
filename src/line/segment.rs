//! Waiters of one cost and the slots they hold: [`Segment`], on lists of [`Node`]s.

use std::collections::VecDeque;
use std::task::Waker;

use slab::Slab;
use tokio::time::Instant;

use super::bound::Bound;
use super::held::Held;
use super::queue::Refusal;
use crate::permit::Limited;
use crate::store::Slot;

/// A waiter.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Node {
    previous: Link,
    next: Link,
    /// Grows with each arrival, so it tells waiters and their order apart.
    pub(super) arrival: u64,
    pub(super) cost: u32,
    pub(super) bound: Bound,
    pub(super) waker: Option<Waker>,
    pub(super) phase: Phase,
}

impl Node {
    pub(super) fn new(arrival: u64, cost: u32, bound: Bound, segment: u64) -> Self {
        Self {
            previous: Link::NONE,
            next: Link::NONE,
            arrival,
            cost,
            bound,
            waker: None,
            phase: Phase::Waiting {
                segment,
                has_slot: false,
            },
        }
    }
}

/// Where a waiter stands.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) enum Phase {
    /// In this segment, where the foremost have slots.
    Waiting { segment: u64, has_slot: bool },
    /// Its slot has come, and is in this place. While `listed`, those ahead on the list go first.
    Due { place: usize, listed: bool },
    /// It will get none.
    Refused(Box<Refusal>),
}

/// The place of a node, or none, in half the room of an index: there are as many as there are waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link(u32);

impl Link {
    const NONE: Self = Self(u32::MAX);

    fn to(index: Option<usize>) -> Self {
        // More waiters than that fit into no memory.
        index.map_or(Self::NONE, |index| Self(index as u32))
    }

    fn get(self) -> Option<usize> {
        (self != Self::NONE).then_some(self.0 as usize)
    }
}

/// A doubly linked list through the nodes of a slab.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct List {
    pub(super) head: Option<usize>,
    tail: Option<usize>,
    len: usize,
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push_back(&mut self, nodes: &mut Slab<Node>, index: usize) {
        self.insert_before(nodes, None, index);
    }

    /// Inserts the node before `next`, or at the end.
    pub(super) fn insert_before(
        &mut self,
        nodes: &mut Slab<Node>,
        next: Option<usize>,
        index: usize,
    ) {
        let previous = next.map_or(self.tail, |next| nodes[next].previous.get());
        nodes[index].previous = Link::to(previous);
        nodes[index].next = Link::to(next);
        match previous {
            Some(previous) => nodes[previous].next = Link::to(Some(index)),
            None => self.head = Some(index),
        }
        match next {
            Some(next) => nodes[next].previous = Link::to(Some(index)),
            None => self.tail = Some(index),
        }
        self.len += 1;
    }

    pub(super) fn remove(&mut self, nodes: &mut Slab<Node>, index: usize) {
        let node = &mut nodes[index];
        let previous = std::mem::replace(&mut node.previous, Link::NONE).get();
        let next = std::mem::replace(&mut node.next, Link::NONE).get();
        match previous {
            Some(previous) => nodes[previous].next = Link::to(next),
            None => self.head = next,
        }
        match next {
            Some(next) => nodes[next].previous = Link::to(previous),
            None => self.tail = previous,
        }
        self.len -= 1;
    }
}

/// What came of handing slots on.
pub(super) struct Settled {
    /// Waiters that left the segment, as their slot would have been beyond their bound.
    pub(super) refused: Vec<(usize, Limited)>,
    /// Slots that nobody wants.
    pub(super) surplus: Vec<Held>,
}

/// Waiters of one cost that arrived after one another.
///
/// The waiter in each place holds the slot in the same place. So when one leaves, everyone behind
/// has moved up, and the surplus slot is the last.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Segment {
    pub(super) cost: u32,
    waiters: List,
    /// How many waiters, from the front, have a slot.
    with_slot: usize,
    /// The first that has none.
    first_without: Option<usize>,
    slots: VecDeque<Held>,
}

impl Segment {
    pub(super) fn new(cost: u32) -> Self {
        Self {
            cost,
            waiters: List::default(),
            with_slot: 0,
            first_without: None,
            slots: VecDeque::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.len() == 0
    }

    pub(super) fn wants_slots(&self) -> bool {
        self.first_without.is_some()
    }

    pub(super) fn head(&self) -> Option<usize> {
        self.waiters.head
    }

    pub(super) fn next_slot(&self) -> Option<&Held> {
        self.slots.front()
    }

    pub(super) fn last_slot(&self) -> Option<&Held> {
        self.slots.back()
    }

    /// The waiters that have no slot, in their order.
    pub(super) fn without_slot<'a>(
        &self,
        nodes: &'a Slab<Node>,
    ) -> impl Iterator<Item = usize> + 'a {
        std::iter::successors(self.first_without, |&index| nodes[index].next.get())
    }

    /// The same, the last first.
    pub(super) fn newest_without_slot<'a>(
        &self,
        nodes: &'a Slab<Node>,
    ) -> impl Iterator<Item = usize> + use<'a> {
        let last = self.first_without.and(self.waiters.tail);
        std::iter::successors(last, |&index| nodes[index].previous.get())
            .take_while(|&index| !nodes[index].has_slot())
    }

    pub(super) fn push_back(&mut self, nodes: &mut Slab<Node>, index: usize) {
        self.waiters.push_back(nodes, index);
        self.first_without = self.first_without.or(Some(index));
    }

    /// Puts a waiter back in its order of arrival.
    pub(super) fn insert(&mut self, nodes: &mut Slab<Node>, index: usize) {
        let arrival = nodes[index].arrival;
        let later = |&it: &usize| nodes[it].arrival > arrival;
        // Where all come back one after the other, each is the last.
        let next = self.waiters.tail.filter(later).and_then(|_| {
            std::iter::successors(self.head(), |&it| nodes[it].next.get()).find(later)
        });
        self.waiters.insert_before(nodes, next, index);
        let before_slot = next.is_some_and(|next| nodes[next].has_slot());
        nodes[index].set_slot(before_slot);
        if before_slot {
            self.with_slot += 1;
            self.take_slots(nodes);
        } else if self.first_without == next {
            self.first_without = Some(index);
        }
    }

    /// Takes a waiter out; where it had a slot, that is to be settled.
    pub(super) fn remove(&mut self, nodes: &mut Slab<Node>, index: usize) {
        if nodes[index].has_slot() {
            self.with_slot -= 1;
        } else if self.first_without == Some(index) {
            self.first_without = nodes[index].next.get();
        }
        self.waiters.remove(nodes, index);
    }

    /// Takes the front waiter and its slot out.
    pub(super) fn pop(&mut self, nodes: &mut Slab<Node>) -> Option<(usize, Held)> {
        let index = self.waiters.head?;
        let held = self.slots.pop_front()?;
        self.with_slot -= 1;
        self.waiters.remove(nodes, index);
        Some((index, held))
    }

    /// Takes the front slot away, so that everyone moves back by one.
    pub(super) fn forfeit(&mut self, nodes: &mut Slab<Node>) -> Option<Held> {
        let held = self.slots.pop_front();
        self.take_slots(nodes);
        held
    }

    /// Takes all slots away.
    pub(super) fn forfeit_all(&mut self, nodes: &mut Slab<Node>) -> VecDeque<Held> {
        let slots = std::mem::take(&mut self.slots);
        self.take_slots(nodes);
        slots
    }

    /// Takes those slots away that are not to be used.
    pub(super) fn void(
        &mut self,
        nodes: &mut Slab<Node>,
        is_void: impl Fn(&Held) -> bool,
    ) -> VecDeque<Held> {
        if !self.slots.iter().any(&is_void) {
            return VecDeque::new();
        }
        let (void, kept) = std::mem::take(&mut self.slots)
            .into_iter()
            .partition(|held| is_void(held));
        self.slots = kept;
        self.take_slots(nodes);
        void
    }

    /// Adds a slot in the order of slots.
    pub(super) fn add_slot(&mut self, held: Held) {
        if self
            .slots
            .back()
            .is_none_or(|it| it.slot.at <= held.slot.at)
        {
            self.slots.push_back(held);
            return;
        }
        let place = self.slots.partition_point(|it| it.slot.at <= held.slot.at);
        self.slots.insert(place, held);
    }

    /// Lets waiters have the slots that nobody has. Those for whom theirs would be too late leave.
    pub(super) fn settle(&mut self, nodes: &mut Slab<Node>, now: Instant) -> Settled {
        let mut refused = Vec::new();
        while let Some(held) = self.slots.get(self.with_slot)
            && let Some(index) = self.first_without
        {
            self.first_without = nodes[index].next.get();
            if nodes[index].bound.excludes(held) {
                refused.push((index, held.limited(now)));
                self.waiters.remove(nodes, index);
            } else {
                nodes[index].set_slot(true);
                self.with_slot += 1;
            }
        }
        Settled {
            refused,
            surplus: self.slots.drain(self.with_slot..).collect(),
        }
    }

    pub(super) fn slots_mut(&mut self) -> impl Iterator<Item = &mut Held> {
        self.slots.iter_mut()
    }

    #[cfg(test)]
    pub(super) fn slots(&self) -> impl Iterator<Item = &Held> {
        self.slots.iter()
    }

    pub(super) fn into_slots(self) -> impl Iterator<Item = Slot> {
        self.slots.into_iter().map(|held| held.slot)
    }

    fn take_slots(&mut self, nodes: &mut Slab<Node>) {
        while self.with_slot > self.slots.len() {
            let last = self
                .first_without
                .map_or(self.waiters.tail, |it| nodes[it].previous.get());
            let Some(index) = last else { return };
            nodes[index].set_slot(false);
            self.first_without = Some(index);
            self.with_slot -= 1;
        }
    }
}

impl Node {
    pub(super) fn has_slot(&self) -> bool {
        matches!(self.phase, Phase::Waiting { has_slot: true, .. })
    }

    fn set_slot(&mut self, it: bool) {
        if let Phase::Waiting { has_slot, .. } = &mut self.phase {
            *has_slot = it;
        }
    }
}
