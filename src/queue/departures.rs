//! The requests that have a turn, and which of them may depart: [`Departures`].

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{Arrival, Request, Turn, Woken};
use crate::algorithm::Mode;

/// So many requests whose turn has come may depart at the same time, as tasks on several threads run in parallel. The
/// others keep the order of arrival.
pub(crate) const NEIGHBOURS: usize = 8;

/// If none departs for the guard divided by this, twice as many may, as some tasks are not polled.
const STALLS_PER_GUARD: u32 = 4;

/// The least time for which none departs in a stall.
const SHORTEST_STALL: Duration = Duration::from_micros(100);

/// The most that may depart at the same time after stalls.
const MOST: usize = 4 * NEIGHBOURS;

/// The requests that have a turn, by arrival.
#[derive(Debug, Clone, Default)]
pub(super) struct Departures {
    pub(super) requests: BTreeMap<Arrival, Departing>,
    pub(super) stall: Stall,
    /// The tasks to wake once the queue is unlocked, also those of other requests.
    pub(super) woken: Woken,
}

/// Which requests with a turn may depart: those before `blocked_from`. The others wait, so that all keep their order. At
/// `check`, the limit grows if none has departed since the last check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Stall {
    /// The requests that arrived then or later are blocked.
    blocked_from: Option<Arrival>,
    /// When to look again whether requests depart.
    pub(super) check: Option<Instant>,
    /// One has departed since the last check.
    has_departed: bool,
    /// How many may depart at the same time, until one does: 1 after requests have missed their turns, or more than usual after
    /// a stall. `None` for the usual number, [`NEIGHBOURS`].
    pub(super) limit: Option<usize>,
    /// How many have departed before the first one that may depart.
    passed: usize,
}

/// A request that has a turn.
#[derive(Debug, Clone)]
pub(super) struct Departing {
    pub(super) request: Box<Request>,
    pub(super) turn: Box<Turn>,
}

impl Departures {
    /// Adds a request that has got a turn. It is blocked until [`unblock`](Self::unblock).
    pub(super) fn insert(&mut self, arrival: Arrival, departing: Departing) {
        self.requests.insert(arrival, departing);
        let from = self.stall.blocked_from;
        self.stall.blocked_from = Some(from.map_or(arrival, |from| from.min(arrival)));
    }

    /// Lets a request depart. If a request before it has missed its turn, it fails with that turn, and nothing departs.
    pub(super) fn depart(&mut self, arrival: Arrival, now: Instant) -> Result<(), Turn> {
        let (stall, mut is_first) = (&mut self.stall, true);
        for (&arrival, before) in self.requests.range(..arrival) {
            if stall.is_late(arrival, before, now) {
                return Err(*before.turn);
            }
            is_first &= before.turn.until <= now;
        }
        self.requests.remove(&arrival);
        stall.passed = if is_first { 0 } else { stall.passed + 1 };
        (stall.has_departed, stall.limit) = (true, None);
        self.unblock(now);
        Ok(())
    }

    /// Lets the next requests depart in their turns.
    pub(super) fn unblock(&mut self, now: Instant) {
        let Some(from) = self.stall.blocked_from else {
            return;
        };
        let most = self.stall.limit.unwrap_or(NEIGHBOURS);
        let before = self.requests.range(..from);
        let next = self.first_blocked().map_or(now, |next| next.from.max(now));
        // After a miss, a request with a later turn does not hold up others.
        let ready = before.filter(|(_, Departing { turn, .. })| {
            now < turn.until && (most > 1 || turn.from <= next)
        });
        let ready = ready.take(most).count();
        if ready == 0 {
            self.stall.passed = 0;
        }
        let free = most.saturating_sub(self.stall.passed + ready);
        let mut blocked = self.requests.range_mut(from..);
        let released = blocked.by_ref().take(free);
        self.woken
            .extend(released.filter_map(|(_, it)| it.request.waker.take()));
        self.stall.blocked_from = blocked.next().map(|(arrival, _)| *arrival);
        self.stall.check = self.first_blocked().map(|next| {
            let first = self.requests.values().next();
            let first = first.map_or(now, |first| first.turn.from.max(now));
            let stall = (next.guard / STALLS_PER_GUARD).max(SHORTEST_STALL);
            let check = next.until.min(first + stall);
            self.stall.check.unwrap_or(check)
        });
    }

    /// The turn of the first request that is blocked.
    pub(super) fn first_blocked(&self) -> Option<Turn> {
        let (_, first) = self.requests.range(self.stall.blocked_from?..).next()?;
        Some(*first.turn)
    }

    /// Takes the turns that have passed from their requests, which were not polled.
    pub(super) fn take_missed(&mut self, now: Instant) -> Vec<Turn> {
        let departing = self.requests.values_mut();
        let missed = departing.filter(|it| it.turn.until < now && !it.turn.units.is_zero());
        let taken = missed.map(|it| {
            it.request.has_missed = true;
            Turn {
                units: std::mem::take(&mut it.turn.units),
                ..*it.turn
            }
        });
        taken.collect()
    }

    /// Unblocks requests. If a check is due, and none has departed since the last one, it raises the limit.
    pub(super) fn check(&mut self, now: Instant) {
        if self.stall.check.is_some_and(|due| due <= now) {
            if !self.stall.has_departed {
                let most = self.stall.limit.unwrap_or(NEIGHBOURS);
                self.stall.limit = Some((2 * most.max(NEIGHBOURS)).min(MOST));
            }
            (self.stall.check, self.stall.has_departed) = (None, false);
        }
        self.unblock(now);
    }

    /// Moves requests of the same cost up if they have later turns than this one, so that all depart in their order. Returns the
    /// turn that is left.
    pub(super) fn move_up(&mut self, mut free: Turn, now: Instant) -> Turn {
        let units = free.units;
        let is_alike = |it: &Departing| {
            it.request.mode == Mode::Wait && it.turn.units == units && it.turn.is_useful(now)
        };
        let last = self.requests.values().rev().find(|it| is_alike(it));
        let is_later = last.is_some_and(|last| last.turn.from > free.from);
        if is_later && free.is_useful(now) {
            for it in self.requests.values_mut().filter(|it| is_alike(it)) {
                if it.turn.from > free.from {
                    std::mem::swap(&mut *it.turn, &mut free);
                    self.woken.extend(it.request.waker.take());
                }
            }
        }
        free
    }
}

impl Stall {
    pub(super) fn blocks(&self, arrival: Arrival) -> bool {
        self.blocked_from.is_some_and(|from| arrival >= from)
    }

    /// Returns true if a request has missed its turn, and may get another one: it was polled since it lost one, or it is blocked.
    pub(super) fn is_late(&self, arrival: Arrival, it: &Departing, now: Instant) -> bool {
        it.turn.until < now && (!it.request.has_missed || self.blocks(arrival))
    }
}
