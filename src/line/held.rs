//! Slots on the local clock: [`Held`].

use std::time::Duration;

use tokio::time::Instant;

use crate::algorithm::micros;
use crate::clock::Offset;
use crate::permit::Limited;
use crate::store::{DRIFT, Slot};

/// A slot on the local clock.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Held {
    pub(crate) slot: Slot,
    /// No departure before.
    pub(crate) due: Instant,
    /// No departure from then on.
    pub(crate) expires: Instant,
    /// Whether it lay in the store's present when it was reserved.
    pub(crate) at_once: bool,
    /// By which of the store's clocks.
    pub(super) clock: u64,
    /// When the life of the state began that it was taken from, where recovery is strict.
    pub(crate) life: u64,
    /// When it was reserved, by the store.
    pub(super) reserved: u64,
    /// Its time by the store, with half of what the clocks may drift apart until then.
    pub(super) at: u64,
    /// How much later it may be used, in microseconds.
    pub(super) recorded: u64,
    /// What it was reserved with, in microseconds.
    pub(super) guard: u32,
    /// How many more could depart when it was reserved.
    pub(crate) remaining: u32,
    /// When, seen from then, all may depart that the quotas allow, in microseconds.
    pub(super) reset: u64,
}

impl Held {
    /// Reads the slot anew, now that the store's clock is known better.
    pub(super) fn read_by(&mut self, offset: &Offset) {
        if self.clock != offset.clock() {
            return;
        }
        if !self.at_once {
            self.due = offset.latest(self.at);
        }
        self.expires = offset.earliest(self.at) + Duration::from_micros(self.recorded);
    }

    pub(crate) fn guard(&self) -> Duration {
        Duration::from_micros(self.guard.into())
    }

    pub(crate) fn reset(&self) -> Duration {
        Duration::from_micros(self.reset)
    }

    /// What to tell a waiter for whom this is too late.
    pub(super) fn limited(&self, now: Instant) -> Limited {
        let delay = self.due.saturating_duration_since(now);
        Limited::new(delay, self.remaining, self.reset())
    }
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
    /// When the life of the state began, where recovery is strict.
    pub(crate) life: u64,
}

/// Brings a slot to the local clock: nothing departs before the slot has come for certain, nor after
/// the guard may be over. Half of the drift that the store allows for is for a clock that is too
/// fast, half for one too slow.
pub(crate) fn hold(slot: Slot, now: u64, remaining: u32, reset: Duration, call: Call) -> Held {
    let wait = slot.at.saturating_sub(now);
    let drift = wait / DRIFT;
    // The guard is what was recorded: less, where another has given the slot back, or more, for one
    // far behind in a burst.
    let recorded = slot.record.saturating_sub(slot.at + drift);
    let recorded = recorded.saturating_sub(micros(call.buffer));
    let guard = micros(call.guard).min(recorded);
    let mut held = Held {
        // What was the present when the store answered has come since.
        due: call.received,
        expires: call.received,
        at_once: wait == 0,
        clock: call.offset.clock(),
        life: call.life,
        reserved: now,
        at: slot.at + drift / 2,
        recorded,
        // An hour at most.
        guard: u32::try_from(guard).unwrap_or(u32::MAX),
        remaining,
        reset: micros(reset),
        slot,
    };
    held.read_by(&call.offset);
    held
}
