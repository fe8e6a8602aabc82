//! The state of a key at one moment: [`Snapshot`].

use std::time::Duration;

use tokio::time::Instant;

use crate::algorithm::Taken;
use crate::cost::Remaining;
use crate::queue::Standing;
use crate::quota::{CONCURRENT, UnitNames};

/// The state of a key at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    pub(crate) delay: Duration,
    pub(crate) remaining: Remaining,
    pub(crate) reset: Duration,
    pub(crate) places: Option<Places>,
}

/// The requests in progress, in all processes; see [`Quota::concurrent`](crate::Quota::concurrent).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Places {
    /// The places that are held, with those of requests that are about to depart.
    pub held: u32,
    /// The processes that hold them.
    pub processes: u32,
}

impl Snapshot {
    /// From what is known in this process.
    pub(crate) fn new(standing: &Standing, now: Instant) -> Self {
        Self {
            delay: until(standing.expected, now),
            remaining: standing.remaining,
            reset: until(standing.reset, now),
            places: None,
        }
    }

    /// From the answer of a store whose clock shows `now`.
    pub(crate) fn of(taken: &Taken, units: UnitNames, now: u64) -> Self {
        let from_now = |at: u64| Duration::from_micros(at.saturating_sub(now));
        Self {
            delay: from_now(taken.expected.first().copied().unwrap_or(0)),
            remaining: Remaining::new(units, taken.remaining),
            reset: from_now(taken.reset),
            places: units.contains(&CONCURRENT).then_some(Places {
                held: taken.occupancy.held,
                processes: taken.occupancy.processes,
            }),
        }
    }

    /// How much of each unit could depart now, requests first.
    pub fn all_remaining(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        self.remaining.each()
    }

    /// How long the request would have to wait, or less: requests that wait in this process may not count, and do not for
    /// [`peek`](crate::Limiter::peek). Zero if it could depart at once, or has waited for a [place](crate::Quota::concurrent) until
    /// its bound. If only a place is missing otherwise, the time after which to ask again, 100 ms, as one may be free at any time.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// How much could depart now: in requests, or in the first unit by name if no quota counts requests. Other units may be
    /// exhausted: see [`remaining_of`](Self::remaining_of).
    pub fn remaining(&self) -> u32 {
        self.remaining.left.0[0]
    }

    /// How much of this unit could depart now; `None` if no quota counts it.
    pub fn remaining_of(&self, unit: &str) -> Option<u32> {
        self.remaining.of(unit)
    }

    /// The requests in progress. `None` if no quota limits how many there are, and in the answer to a request that was
    /// refused: [`peek`](crate::Limiter::peek) asks the store.
    pub fn places(&self) -> Option<Places> {
        self.places
    }

    /// How long until all units of the quotas are available again. Pauses and requests in progress do not count.
    pub fn reset(&self) -> Duration {
        self.reset
    }
}

/// The time from now until then, in whole microseconds, rounded up.
pub(crate) fn until(at: Option<Instant>, now: Instant) -> Duration {
    let left = at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
    let micros = u64::from(left.subsec_nanos().div_ceil(1_000));
    Duration::from_secs(left.as_secs()) + Duration::from_micros(micros)
}
