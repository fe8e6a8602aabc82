//! The right to depart now, or the word that it is not there yet: [`Permit`], [`Decision`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::algorithm::micros;
use crate::epoch::Epoch;
use crate::key::Key;
use crate::line::Departing;
#[cfg(any(feature = "tower", feature = "reqwest"))]
use crate::telling::Departed;

/// The right to depart now.
///
/// Send the request at once, or call [`forfeit`](Self::forfeit). Dropping a permit counts as a
/// departure: there is nothing to be done after the request. A permit that [is not
/// valid](Self::is_valid) any more must not be used, as its slot may be another's by then; [`run`]
/// and the adapters see to that.
///
/// [`run`]: crate::Limiter::run
pub struct Permit {
    epoch: Arc<Epoch>,
    key: Key,
    departing: Departing,
    /// In nanoseconds.
    waited: u64,
}

impl Permit {
    #[inline]
    pub(crate) fn new(epoch: Arc<Epoch>, key: Key, departing: Departing, waited: Duration) -> Self {
        Self {
            epoch,
            key,
            departing,
            waited: u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Whether there is still time to depart.
    ///
    /// A permit is valid for the [guard](crate::LimiterBuilder::guard), less the round trip to the
    /// store: for some milliseconds.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        Instant::now() < self.departing.expires()
    }

    pub(crate) fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
    }

    #[cfg_attr(
        not(feature = "tower"),
        expect(dead_code, reason = "only a service makes a permit wait")
    )]
    pub(crate) fn expires(&self) -> Instant {
        self.departing.expires()
    }

    /// It has departed, and will be answered.
    #[cfg(any(feature = "tower", feature = "reqwest"))]
    pub(crate) fn depart(self) -> Departed {
        Departed::new(
            self.epoch,
            self.key,
            self.departing.slot.at,
            self.departing.remaining,
        )
    }

    /// Gives the slot back, unused: to the next in line, or to the store for any replica to take.
    ///
    /// Outside of a tokio runtime, only the embedded store takes it back; elsewhere it stays
    /// reserved until its time has passed.
    pub fn forfeit(self) {
        self.epoch.forget_denial(&self.key);
        let held = self.departing.held(self.epoch.guard.current());
        self.epoch.lines.give(&self.epoch, &self.key, held);
    }

    /// How long the request waited.
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited)
    }

    /// How many more requests of cost 1 could have departed at once when the slot was reserved.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.departing.remaining
    }

    /// How long, from when the slot was reserved, until nothing recorded counts any more and as
    /// many requests may depart at once as the quotas allow.
    #[must_use]
    pub fn reset(&self) -> Duration {
        Duration::from_micros(self.departing.reset)
    }

    /// Whether the departure counts: always, but for what [`Outage::Allow`](crate::Outage::Allow) lets depart
    /// while the store is out. How many more may depart, then, says nothing.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.epoch.is_counted
    }

    /// Whose quota the request spends.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// What the request costs.
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.departing.slot.cost
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("key", &self.key)
            .field("cost", &self.cost())
            .field("waited", &self.waited())
            .finish_non_exhaustive()
    }
}

/// What [`try_acquire`](crate::Limiter::try_acquire) says.
#[derive(Debug)]
pub enum Decision {
    /// The request may depart now.
    Granted(Permit),
    /// It may not, and nothing was consumed.
    Limited(Limited),
}

impl Decision {
    /// The permit, if there is one.
    pub fn permit(self) -> Option<Permit> {
        match self {
            Self::Granted(permit) => Some(permit),
            Self::Limited(_) => None,
        }
    }

    /// Whether the request may depart now.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        matches!(self, Self::Granted(_))
    }
}

/// Why a request may not depart now: how long it would have to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// In nanoseconds.
    delay: u64,
    remaining: u64,
    /// In microseconds.
    reset: u64,
}

impl Limited {
    pub(crate) fn new(delay: Duration, remaining: u32, reset: Duration) -> Self {
        Self {
            delay: u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX),
            remaining: remaining.into(),
            reset: micros(reset),
        }
    }

    /// Of times in microseconds.
    #[inline]
    pub(crate) fn of_micros(delay: u64, remaining: u64, reset: u64) -> Self {
        Self {
            delay: delay.saturating_mul(1_000),
            remaining,
            reset,
        }
    }

    /// How long until this request could depart, if no other comes before it; to the microsecond.
    #[must_use]
    pub fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay)
    }

    /// How many requests of cost 1 could depart now.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        u32::try_from(self.remaining).unwrap_or(u32::MAX)
    }

    /// How long until as many requests may depart at once as the quotas allow.
    #[must_use]
    pub fn reset(&self) -> Duration {
        Duration::from_micros(self.reset)
    }
}
