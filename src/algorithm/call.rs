//! One call for a key and its answer: [`Take`] and [`Taken`], and a [`Command`].

use smallvec::SmallVec;

use super::demand::FORGOTTEN;
use super::{Corrections, Costs, Counter, Demand, Flow, Holding, Occupancy, Reserves};

/// A request that waits for a place is expected to depart after the horizon, and not earlier than after this.
pub(super) const LEAST_BEYOND: u64 = 100_000;

/// When a call was executed, and the spans that it brings along.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) now: u64,
    /// How long the answer takes: a request departs no earlier than it arrives.
    pub(crate) round_trip: u64,
    /// The guard and the buffer: how much later than granted a request may arrive upstream.
    pub(crate) lateness: u64,
    /// How far ahead departures are granted.
    pub(crate) horizon: u64,
}

impl Times {
    /// The latest moment at which a request that may depart at `at` can arrive upstream.
    pub(crate) fn recorded(&self, at: u64) -> u64 {
        at.max(self.now + self.round_trip) + self.lateness
    }

    /// A time, behind the horizon, at which this call grants nothing.
    pub(super) fn beyond(&self) -> u64 {
        self.now + self.horizon.max(LEAST_BEYOND) + 1
    }
}

/// Units that were recorded at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) recorded: u64,
    pub(crate) units: Costs,
}

/// A departure time that the store has recorded for one or more requests of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// When they may depart, in microseconds on the store's clock.
    pub at: u64,
    /// The latest moment at which they may arrive upstream. They depart earlier than that by the buffer.
    pub recorded: u64,
    /// How many of the first requests that still wait.
    pub requests: u32,
}

/// How requests ask for departures. Calls of scripts have these numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Requests that are not granted wait: the demand is kept.
    #[default]
    Wait = 0,
    /// Requests depart now or not at all: no demand is kept.
    Try = 1,
    /// Nothing is recorded.
    Peek = 2,
}

/// One process asks for the departures of its requests for one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Take {
    /// A random number of the process, less than 2^53.
    pub process: u64,
    /// The number of this call, greater than those of all earlier calls of the process. 0 if the answer cannot be
    /// lost.
    pub number: u64,
    /// How the requests ask.
    pub mode: Mode,
    /// How long the answer is likely to take, in microseconds.
    pub round_trip: u64,
    /// How much later than granted a request may depart, in microseconds.
    pub guard: u64,
    /// How far ahead departures are granted, in microseconds.
    pub horizon: u64,
    /// The process's knowledge of the state, if recovery is strict.
    pub strict: Option<Strict>,
    /// The share of the requests.
    pub flow: Flow,
    /// The parts of the capacity that levels have for themselves.
    pub reserves: Reserves,
    /// The requests.
    pub demand: Demand,
    /// The report on past departures.
    pub corrections: Corrections,
    /// The places of its requests in progress.
    pub holding: Holding,
}

/// Requests of other processes depart at most so long after the call that granted them, in microseconds.
pub(super) const OTHERS_DEPART_WITHIN: u64 = 1_000_000;

impl Take {
    /// Asks for one request that arrives now, in a way that no answer can lose.
    pub(crate) fn one(mode: Mode, cost: impl Into<Costs>) -> Self {
        Self {
            mode,
            // Behind all that wait.
            demand: Demand::single(u64::MAX, cost.into()),
            ..Self::default()
        }
    }

    pub(crate) fn times(&self, buffer: u64, now: u64) -> Times {
        Times {
            now,
            round_trip: self.round_trip,
            lateness: self.guard + buffer,
            horizon: self.horizon,
        }
    }

    pub(crate) fn has_share(&self) -> bool {
        self.flow != Flow::default()
    }

    pub(crate) fn has_reserves(&self) -> bool {
        self.reserves != Reserves::default()
    }

    /// How long after the call its requests may depart.
    fn departs_within(&self) -> u64 {
        self.horizon + self.round_trip + self.guard
    }

    /// Shortens the guard, but not below this one, so that the quarantine of any other process covers the departures of
    /// this call.
    pub(crate) fn shorten_guard(&mut self, least: u64) {
        let excess = self.departs_within().saturating_sub(OTHERS_DEPART_WITHIN);
        let shorter = self.guard.saturating_sub(excess).max(least);
        self.guard = self.guard.min(shorter);
    }

    /// How long the quarantine of a key lasts if departures under these quotas may have been lost.
    pub(crate) fn quarantine(&self, quotas: &[Counter], buffer: u64) -> u64 {
        let memory = quotas.iter().map(|quota| quota.memory()).max();
        // The horizon and the guard of another process may be longer than those of this one.
        let ahead = self.departs_within().max(OTHERS_DEPART_WITHIN);
        memory.unwrap_or(0) + ahead + buffer
    }
}

/// The state of a key that a process has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Known {
    /// When the state began.
    pub generation: u64,
    /// How often it had been written.
    pub version: u64,
}

/// The knowledge that a call under strict recovery carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Strict {
    /// The state that the process has seen last, if it has not expired since.
    pub known: Option<Known>,
    /// Whether the server's clock was set since.
    pub clock_was_set: bool,
}

/// The server that holds a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// A number of the server process.
    pub server: u64,
    /// The time since which the server has seen every call. Earlier departures may be lost.
    pub since: u64,
}

/// The answer of a key to one call, which the limiter reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// The departures of the first requests, in their order.
    #[doc(hidden)]
    pub grants: SmallVec<[Grant; 1]>,
    /// How much of each unit may depart now beyond what was granted.
    #[doc(hidden)]
    pub remaining: Costs,
    /// When all units of the quotas are available again, on the store's clock.
    #[doc(hidden)]
    pub reset: u64,
    /// When the process has to call again, on the store's clock; 0 if none of its requests waits.
    #[doc(hidden)]
    pub next_call: u64,
    /// The estimated departure of each [point](Demand) of the demand that was not granted, on the store's clock.
    /// It may be early, never late.
    #[doc(hidden)]
    pub expected: SmallVec<[u64; 1]>,
    /// Requests of this process that join later overtake some of other processes that wait.
    #[doc(hidden)]
    pub overtakes: bool,
    /// The end of the key's pause, on the store's clock.
    #[doc(hidden)]
    pub paused_until: u64,
    /// A later call of this process has arrived already. Nothing was done.
    #[doc(hidden)]
    pub is_outdated: bool,
    /// The state as it is now, if recovery is strict.
    #[doc(hidden)]
    pub known: Option<Known>,
    /// The end of the key's quarantine after its state was lost.
    #[doc(hidden)]
    pub quarantined_until: u64,
    /// The requests in progress, if a quota limits how many there are.
    #[doc(hidden)]
    pub occupancy: Occupancy,
    /// The processes whose requests may depart earlier after this call than they expect.
    #[doc(hidden)]
    pub nudged: Vec<u64>,
}

impl Taken {
    /// How many of the requests may depart.
    pub(crate) fn granted(&self) -> u64 {
        let granted = self.grants.iter().map(|grant| u64::from(grant.requests));
        granted.sum()
    }

    /// The store keeps the state until then at least: for departures that count, a quarantine, or requests that wait.
    pub(crate) fn kept_until(&self) -> u64 {
        let announced = match self.next_call {
            0 => 0,
            due => due + FORGOTTEN,
        };
        self.reset.max(self.quarantined_until).max(announced)
    }
}

/// The answer to one request that departs at once or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// The latest moment at which it may arrive upstream, if it departs.
    pub(crate) recorded: Option<u64>,
    /// When it could depart.
    pub(crate) earliest: u64,
    pub(crate) remaining: Costs,
    pub(crate) reset: u64,
}

/// A command for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Nothing departs for so long, in microseconds. A longer pause stays.
    Pause {
        /// How long.
        span: u64,
        /// If the pause answers a request, when that request was [recorded](Grant::recorded), else [`u64::MAX`].
        /// An answer to a request that is older than the last pause, resume or reset is ignored.
        evidence: u64,
    },
    /// At most so much of one unit departs for so long.
    Allow {
        /// The number of the unit among those of the policy.
        unit: usize,
        /// How much.
        units: u32,
        /// How long.
        span: u64,
        /// As of a pause.
        evidence: u64,
    },
    /// Ends pauses and allowances.
    Resume,
    /// Forgets all departures, pauses and allowances.
    Reset,
}
