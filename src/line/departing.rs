//! Slots that have come: [`Departing`].

use std::time::Duration;

use tokio::time::Instant;

use super::held::Held;
use crate::store::Slot;

/// What a permit keeps of a slot that has come: no more than it takes to hold it again, as permits are
/// passed around, and moving a large one takes as long as finding a slot.
#[derive(Debug)]
pub(crate) struct Departing {
    pub(crate) slot: Slot,
    /// When the life of the state began that it was taken from, where recovery is strict.
    life: u64,
    /// When its slot came, at the earliest.
    came: Instant,
    /// How much later than that it may depart, in microseconds.
    recorded: u32,
    /// How many more could depart when it was reserved.
    pub(crate) remaining: u32,
    /// When, seen from then, all may depart that the quotas allow, in microseconds.
    pub(crate) reset: u64,
}

impl Departing {
    /// A slot in the present of a store that reads the local clock, as it was at `sent`.
    #[inline]
    pub(crate) fn at_once(
        slot: Slot,
        sent: Instant,
        buffer: u64,
        remaining: u64,
        reset: u64,
    ) -> Self {
        Self {
            life: 0,
            came: sent,
            recorded: saturated(slot.record.saturating_sub(slot.at + buffer)),
            remaining: saturated(remaining),
            reset,
            slot,
        }
    }

    /// No departure from then on.
    #[inline]
    pub(crate) fn expires(&self) -> Instant {
        self.came + Duration::from_micros(self.recorded.into())
    }

    /// Whether it is too late to depart; without a time, the slot has come this moment.
    #[inline]
    pub(crate) fn is_over(&self, now: Option<Instant>) -> bool {
        match now {
            Some(now) => now >= self.expires(),
            None => self.recorded == 0,
        }
    }

    /// The slot for those who wait, reserved with this guard at most.
    pub(crate) fn held(self, guard: Duration) -> Held {
        let guard = u32::try_from(guard.as_micros()).unwrap_or(u32::MAX);
        Held {
            due: self.came,
            expires: self.expires(),
            at_once: true,
            life: self.life,
            // None reads it anew.
            clock: u64::MAX,
            reserved: self.slot.at,
            at: self.slot.at,
            recorded: self.recorded.into(),
            guard: guard.min(self.recorded),
            remaining: self.remaining,
            reset: self.reset,
            slot: self.slot,
        }
    }
}

impl From<Held> for Departing {
    fn from(held: Held) -> Self {
        let recorded = saturated(held.recorded);
        let came = held
            .expires
            .checked_sub(Duration::from_micros(recorded.into()));
        Self {
            life: held.life,
            came: came.unwrap_or(held.due),
            recorded,
            remaining: held.remaining,
            reset: held.reset,
            slot: held.slot,
        }
    }
}

/// An hour at most, unless the store is slower than that.
fn saturated(micros: u64) -> u32 {
    u32::try_from(micros).unwrap_or(u32::MAX)
}
