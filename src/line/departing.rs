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
    /// No departure from then on.
    pub(crate) expires: Instant,
    /// How much later than its slot it may depart, in microseconds.
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
        remaining: u32,
        reset: u64,
    ) -> Self {
        let recorded = slot.record.saturating_sub(slot.at + buffer);
        Self {
            expires: sent + Duration::from_micros(recorded),
            recorded: saturated(recorded),
            remaining,
            reset,
            slot,
        }
    }

    /// The slot for those who wait, reserved with this guard at most.
    pub(crate) fn held(self, guard: Duration) -> Held {
        let recorded = Duration::from_micros(self.recorded.into());
        Held {
            due: self.expires.checked_sub(recorded).unwrap_or(self.expires),
            expires: self.expires,
            at_once: true,
            at: self.slot.at,
            recorded: self.recorded.into(),
            guard: u32::try_from(guard.as_micros())
                .map_or(self.recorded, |it| it.min(self.recorded)),
            remaining: self.remaining,
            reset: self.reset,
            slot: self.slot,
        }
    }
}

impl From<Held> for Departing {
    fn from(held: Held) -> Self {
        Self {
            expires: held.expires,
            recorded: saturated(held.recorded),
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
