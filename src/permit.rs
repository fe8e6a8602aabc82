//! The right to depart now, or the reason why not: [`Permit`], [`Decision`] and [`Departure`].

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cost::Remaining;
use crate::dispatcher::{Granted, Handle, Place};
use crate::key::Key;
use crate::snapshot::{Snapshot, until};

/// The right to depart now.
///
/// Send the request at once, or call [`forfeit`](Self::forfeit). Dropping a permit counts as a departure. If a quota limits
/// how many requests are in progress, the permit [holds](Self::hold) the place of one. A permit that
/// [is no longer valid](Self::is_valid) must not be used: other requests may depart instead by then.
/// [`run`](crate::Limiter::run) and the adapters take care of that.
#[derive(Debug)]
pub struct Permit {
    pub(crate) handle: Arc<Handle>,
    pub(crate) is_counted: bool,
    pub(crate) key: Key,
    pub(crate) granted: Granted,
}

impl Permit {
    /// Returns true while there is time to depart: for the [guard](crate::LimiterBuilder::guard), less the round trip to
    /// the store.
    pub fn is_valid(&self) -> bool {
        Instant::now() < self.granted.turn.until
    }

    /// Gives the departure back, unused: the next request in the queue takes it, or the store makes it available to
    /// all processes.
    pub fn forfeit(self) {
        self.handle.forfeit(&self.key, self.granted);
    }

    /// The place of the request among those in progress, if a quota [limits](crate::Quota::concurrent) how many there are.
    /// Keep it until the work has ended. A permit that is dropped, or that has become a [charge](Self::into_charge), holds none.
    ///
    /// Without such a quota, the place is [not held](Place::is_held), and does nothing.
    #[must_use = "the place is released when it is dropped"]
    pub fn hold(self) -> Place {
        self.granted.place
    }

    /// How long the request waited.
    #[inline]
    pub fn waited(&self) -> Duration {
        self.granted.waited
    }

    /// How much more could have departed at once: in requests, or in the first unit by name if no quota counts requests. Other
    /// units may be exhausted: see [`remaining_of`](Self::remaining_of).
    #[inline]
    pub fn remaining(&self) -> u32 {
        self.granted.remaining.left.0[0]
    }

    /// How much more of this unit could have departed at once; `None` if no quota counts it.
    pub fn remaining_of(&self, unit: &str) -> Option<u32> {
        self.granted.remaining.of(unit)
    }

    /// How long until all units of the quotas are available again.
    pub fn reset(&self) -> Duration {
        until(Some(self.granted.resets()), Instant::now())
    }

    /// Whether the departure counts. It does not if a rule exempts the request, or if
    /// [`Outage::Allow`](crate::Outage::Allow) lets it depart
    /// while the store is out.
    pub fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The cost of the request, in requests or else in the first unit by name.
    pub fn cost(&self) -> u32 {
        self.granted.turn.units.0[0]
    }

    /// The cost of the request in this unit; `None` if no quota counts it.
    pub fn cost_of(&self, unit: &str) -> Option<u32> {
        let turn = &self.granted.turn;
        Remaining::new(turn.counters.units, turn.units).of(unit)
    }
}

/// The answer of [`try_acquire`](crate::Limiter::try_acquire).
#[derive(Debug)]
#[must_use = "a request that is limited must not be sent"]
pub enum Decision {
    /// The request may depart now.
    Granted(Permit),
    /// It may not, and nothing was recorded. The state of the key shows how long it would have to wait at
    /// least.
    Limited(Snapshot),
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
    pub fn is_granted(&self) -> bool {
        matches!(self, Self::Granted(_))
    }
}

/// How a request departed; the adapters put it into the extensions of its response.
///
/// ```
/// # use tower_throttle::Departure;
/// # fn example(response: http::Response<()>) {
/// if let Some(departure) = response.extensions().get::<Departure>() {
///     println!("waited {:?}, {} more could go", departure.waited(), departure.remaining());
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    waited: Duration,
    remaining: Remaining,
    reset: Instant,
}

impl Departure {
    /// How long the request waited for its permit; of several attempts, the last.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How much more could have departed at once: in requests, or in the first unit by name if no quota counts requests. Other
    /// units may be exhausted: see [`remaining_of`](Self::remaining_of).
    pub fn remaining(&self) -> u32 {
        self.remaining.left.0[0]
    }

    /// How much more of this unit could have departed at once; `None` if no quota counts it.
    pub fn remaining_of(&self, unit: &str) -> Option<u32> {
        self.remaining.of(unit)
    }

    /// How long from now until all units of the quotas are available again.
    pub fn reset(&self) -> Duration {
        until(Some(self.reset), Instant::now())
    }
}

impl From<&Permit> for Departure {
    #[inline]
    fn from(permit: &Permit) -> Self {
        Self {
            waited: permit.waited(),
            remaining: permit.granted.remaining,
            reset: permit.granted.resets(),
        }
    }
}
