//! The state of one key, and the operations on it: [`State`].
//!
//! All times are whole microseconds on the store's clock. The scripts in Lua beside these files do the same on the
//! encoded value.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::mem::discriminant;

use smallvec::SmallVec;

use crate::quota::{self, MOST_UNITS, Quota, REQUESTS, units_of};

#[cfg(feature = "redis")]
pub(crate) use self::{
    codec::{Amounts, HEAD as VALUE_HEAD, unit_names},
    order::has_flow,
};
pub(crate) use self::{
    concurrent::Concurrent,
    demand::{Announcement, level},
    fixed::Fixed,
    gcra::Gcra,
    numbers::{Reader, Writer},
    order::{Ahead, Others, Tag},
    units::{LANE_BITS, LEVEL_BITS, Units},
    window::Window,
};
pub use self::{
    concurrent::{Holding, Occupancy},
    corrections::{Corrections, Settlement},
    demand::Demand,
    order::{Flow, Reserves},
    units::Costs,
};

mod codec;
mod concurrent;
mod corrections;
mod demand;
mod fixed;
mod gcra;
mod numbers;
mod order;
#[cfg(test)]
mod tests;
mod units;
mod usage;
mod window;

/// The longest span: ten years. Longer ones are cut, so that doubles hold all times exactly.
const LONGEST_SPAN: u64 = 10 * 365 * 24 * 60 * 60 * 1_000_000;

/// The most times at which one call grants departures.
const MOST_GRANTS: usize = 256;

/// The most times that joint quotas are asked in turn until all agree.
const MOST_ROUNDS: usize = 64;

/// The most counters of former quotas that a state keeps.
const MOST_FORMER: usize = 8;

/// The least time until the next call of a process, and the longest time that a waiting process does not call.
const SOONEST_CALL: u64 = 2_000;
const LONGEST_SILENCE: u64 = 1_000_000;

/// A process that waits is nudged if its next request may depart so much earlier than it calls.
const UNAWARE: u64 = 250_000;

/// The most processes that one call nudges: their number is a byte.
const MOST_NEXT: usize = 255;

/// A process that was nudged is overdue after so long and two round trips.
const SOON: u64 = 120_000;

/// The least time in which a request without a place may get one, as far as answers say.
const LEAST_BEYOND: u64 = 100_000;

/// How the departures of one quota are counted. Another algorithm is another implementation, in Rust and in Lua.
pub(crate) trait Algorithm {
    /// Forgets departures that no longer count.
    fn drop_expired(&mut self, _now: u64) {}

    /// The first time from `from` on at which a request of this cost may depart, behind so many units that are ahead
    /// of it. If there are any, it is an estimate, which may be early, never late.
    fn earliest(&self, from: u64, ahead: u64, cost: u64, terms: &Terms) -> u64;

    /// How many requests of this cost may depart together at `at`, which is a time that `earliest` has named.
    fn fits(&self, at: u64, cost: u32, terms: &Terms) -> u64;

    /// How many units may depart now.
    fn remaining(&self, terms: &Terms) -> u64 {
        match self.earliest(terms.now, 0, 1, terms) == terms.now {
            true => self.fits(terms.now, 1, terms),
            false => 0,
        }
    }

    /// Records a departure at `at`, which may happen until `recorded`.
    fn take(&mut self, at: u64, recorded: u64, units: u32);

    /// Corrects a recorded departure. One that is not found stays as it is.
    fn settle(&mut self, settled: &Settlement);

    /// The time at which the counter is as good as a new one.
    fn expires(&self) -> u64;

    /// When all units are available again.
    fn resets(&self) -> u64 {
        self.expires()
    }

    /// Forgets all departures.
    fn clear(&mut self);

    /// How long a departure counts.
    fn memory(&self) -> u64;
}

/// The unit of a counter: its name, and its number among the units of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    number: u8,
}

impl Default for Unit {
    fn default() -> Self {
        let (name, number) = (REQUESTS, 0);
        Self { name, number }
    }
}

/// Uses the counter, whichever algorithm it has. Unlike a pointer to its methods, this can be inlined.
macro_rules! counted {
    ($counter:ident, $it:ident => $use:expr) => {
        match $counter {
            Self::Window($it) => $use,
            Self::Gcra($it) => $use,
            Self::Fixed($it) => $use,
            Self::Concurrent($it) => $use,
        }
    };
}

/// A quota with its recorded departures.
#[derive(Debug, Clone, PartialEq, Eq)]
// A tag of its own makes each match cheaper than one in the capacity of a log.
#[repr(u8)]
pub(crate) enum Counter {
    Window(Window),
    Gcra(Gcra),
    Fixed(Fixed),
    Concurrent(Concurrent),
}

impl Counter {
    /// The counter of a quota, in which nothing was recorded.
    pub(crate) fn new(quota: &Quota) -> Self {
        let (limit, window) = (quota.limit(), quota.window().as_micros() as u64);
        let interval = window.div_ceil(limit.into());
        let mut counter = match quota.counted_by() {
            quota::Algorithm::SlidingLog => Self::Window(Window::new(limit, window)),
            quota::Algorithm::SlidingBuckets { buckets } => {
                Self::Window(Window::with_buckets(limit, window, buckets))
            }
            quota::Algorithm::Gcra { burst } => Self::Gcra(Gcra::new(burst, interval, false)),
            quota::Algorithm::Spacing | quota::Algorithm::LeakyBucket { .. } => {
                Self::Gcra(Gcra::new(limit, interval, true))
            }
            quota::Algorithm::FixedWindow { start } => Self::Fixed(Fixed::new(
                limit,
                window,
                start == quota::WindowStart::Clock,
            )),
            quota::Algorithm::Concurrent { .. } => Self::Concurrent(Concurrent::new(limit, window)),
        };
        counter.unit_mut().name = quota.unit_name();
        counter
    }

    pub(crate) fn unit(&self) -> &Unit {
        counted!(self, it => &it.unit)
    }

    fn unit_mut(&mut self) -> &mut Unit {
        counted!(self, it => &mut it.unit)
    }

    /// The number of its unit among those of the policy.
    pub(crate) fn nth(&self) -> usize {
        self.unit().number.into()
    }

    /// Forgets what no longer counts, and returns when a request may depart, if it costs anything here.
    #[inline(always)]
    fn earliest_now(&mut self, cost: &Costs, terms: &Terms) -> u64 {
        counted!(self, it => {
            it.drop_expired(terms.now);
            match cost.0[usize::from(it.unit.number)] {
                0 => terms.now,
                cost => it.earliest(terms.now, 0, cost.into(), terms),
            }
        })
    }

    /// Records departures, if they cost anything here.
    #[inline(always)]
    fn record(&mut self, at: u64, recorded: u64, units: &Costs) {
        counted!(self, it => match units.0[usize::from(it.unit.number)] {
            0 => {}
            units => it.take(at, recorded, units),
        });
    }

    /// The number of its unit, how many units may depart now, and when all are available again.
    #[inline(always)]
    fn left(&self, terms: &Terms) -> (usize, u64, u64) {
        counted!(self, it => (it.unit.number.into(), it.remaining(terms), it.resets()))
    }

    /// The time over which departures count.
    fn span(&self) -> u64 {
        match self {
            Self::Window(it) => it.window,
            Self::Gcra(it) => it.interval,
            Self::Fixed(it) => it.window,
            // Places are no departures.
            Self::Concurrent(_) => 0,
        }
    }

    /// Returns true if this counter continues under the quota, with other numbers alone.
    fn is_like(&self, quota: &Self) -> bool {
        match (self, quota) {
            _ if self.unit() != quota.unit() => false,
            (Self::Gcra(_), Self::Gcra(_)) | (Self::Concurrent(_), Self::Concurrent(_)) => true,
            (Self::Fixed(it), Self::Fixed(quota)) if it.aligned != quota.aligned => false,
            _ => discriminant(self) == discriminant(quota) && self.span() == quota.span(),
        }
    }

    /// Stores the log as the other counter stores its own.
    #[cfg(feature = "redis")]
    pub(crate) fn store_like(&mut self, stored: &Self) {
        if let (Self::Window(it), Self::Window(stored)) = (self, stored) {
            it.has_ring = stored.has_ring;
        }
    }

    /// Takes the numbers of another quota and keeps the departures, if the algorithm is the same.
    fn continue_as(&mut self, quota: &Self) -> bool {
        if self.unit().name != quota.unit().name {
            return false;
        }
        *self.unit_mut() = *quota.unit();
        match (self, quota) {
            (Self::Window(it), Self::Window(quota)) => {
                (it.limit, it.window, it.grain) = (quota.limit, quota.window, quota.grain);
                it.has_ring = quota.has_ring;
            }
            (Self::Gcra(it), Self::Gcra(quota)) => {
                it.continue_as(quota);
            }
            (Self::Fixed(it), Self::Fixed(quota)) if it.aligned == quota.aligned => {
                it.continue_as(quota);
            }
            (Self::Concurrent(it), Self::Concurrent(quota)) => {
                (it.limit, it.lease) = (quota.limit, quota.lease);
            }
            _ => return false,
        }
        true
    }
}

/// Numbers the units of the counters of a policy, and returns their names.
pub(crate) fn number_units(counters: &mut [Counter]) -> SmallVec<[&'static str; 1]> {
    let units = units_of(counters.iter().map(|counter| counter.unit().name));
    for counter in counters {
        let unit = counter.unit_mut();
        let number = units.iter().position(|name| *name == unit.name);
        unit.number = number.unwrap_or(0) as u8;
    }
    units
}

/// Returns true if the counters continue under these quotas, each in its place.
pub(crate) fn are_alike(counters: &[Counter], quotas: &[Counter]) -> bool {
    let mut pairs = counters.iter().zip(quotas);
    counters.len() == quotas.len() && pairs.all(|(counter, quota)| counter.is_like(quota))
}

impl Algorithm for Counter {
    #[inline]
    fn drop_expired(&mut self, now: u64) {
        counted!(self, it => it.drop_expired(now));
    }

    #[inline]
    fn earliest(&self, from: u64, ahead: u64, cost: u64, terms: &Terms) -> u64 {
        counted!(self, it => it.earliest(from, ahead, cost, terms))
    }

    #[inline]
    fn fits(&self, at: u64, cost: u32, terms: &Terms) -> u64 {
        counted!(self, it => it.fits(at, cost, terms))
    }

    #[inline]
    fn take(&mut self, at: u64, recorded: u64, units: u32) {
        counted!(self, it => it.take(at, recorded, units));
    }

    fn settle(&mut self, settled: &Settlement) {
        counted!(self, it => it.settle(settled));
    }

    fn expires(&self) -> u64 {
        counted!(self, it => it.expires())
    }

    #[inline]
    fn resets(&self) -> u64 {
        counted!(self, it => it.resets())
    }

    fn clear(&mut self) {
        counted!(self, it => it.clear());
    }

    fn memory(&self) -> u64 {
        counted!(self, it => it.memory())
    }
}

/// The terms of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) now: u64,
    /// How long the answer takes: a request departs no earlier than it arrives.
    pub(crate) round_trip: u64,
    /// The guard and the buffer: how much later than granted a request may arrive upstream.
    pub(crate) hold: u64,
    /// How far ahead departures are granted.
    pub(crate) horizon: u64,
}

impl Terms {
    /// The latest moment at which a request that may depart at `at` can arrive upstream.
    pub(crate) fn recorded(&self, at: u64) -> u64 {
        at.max(self.now + self.round_trip) + self.hold
    }

    /// A time at which this call grants nothing.
    fn beyond(&self) -> u64 {
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

/// How requests ask for departures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Requests that are not granted wait: the demand is kept.
    #[default]
    Wait,
    /// Requests depart now or not at all: no demand is kept.
    Try,
    /// Nothing is recorded.
    Peek,
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
const LONGEST_AHEAD: u64 = 1_000_000;

impl Take {
    /// Asks for one request that arrives now, in a way that no answer can lose.
    pub(crate) fn one(mode: Mode, cost: impl Into<Costs>) -> Self {
        Self {
            mode,
            demand: Demand::one(cost.into()),
            ..Self::default()
        }
    }

    pub(crate) fn terms(&self, buffer: u64, now: u64) -> Terms {
        Terms {
            now,
            round_trip: self.round_trip,
            hold: self.guard + buffer,
            horizon: self.horizon,
        }
    }

    /// Returns true if capacity is not divided by level and arrival alone.
    pub(crate) fn is_fair(&self) -> bool {
        let is_divided = self.flow != Flow::default() || self.reserves != Reserves::default();
        is_divided || self.corrections.moved != 0
    }

    /// How long after the call its requests may depart.
    fn ahead(&self) -> u64 {
        self.horizon + self.round_trip + self.guard
    }

    /// Shortens the guard, but not below this one, so that the quarantine of any other process covers the departures of
    /// this call.
    pub(crate) fn shorten_guard(&mut self, least: u64) {
        let excess = self.ahead().saturating_sub(LONGEST_AHEAD);
        let shorter = self.guard.saturating_sub(excess).max(least);
        self.guard = self.guard.min(shorter);
    }

    /// How long a key rests if departures under these quotas may have been lost.
    pub(crate) fn quarantine(&self, quotas: &[Counter], buffer: u64) -> u64 {
        let memory = quotas.iter().map(|quota| quota.memory()).max();
        // The horizon and the guard of another process may be longer than those of this one.
        let ahead = self.ahead().max(LONGEST_AHEAD);
        memory.unwrap_or(0) + ahead + buffer
    }
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
    pub next: Vec<u64>,
}

impl Taken {
    /// How many of the requests may depart.
    pub(crate) fn granted(&self) -> u64 {
        let granted = self.grants.iter().map(|grant| u64::from(grant.requests));
        granted.sum()
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

/// The effect of past commands on a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) paused_until: u64,
    /// For each unit, at most how much departs, and until when.
    pub(crate) allowed: [(u32, u64); MOST_UNITS],
    /// When the last pause, resume or reset was applied.
    pub(crate) commanded: u64,
}

impl Hold {
    fn expires(&self) -> u64 {
        let allowed = self.allowed.iter().map(|&(_, until)| until).max();
        let ends = self.paused_until.max(allowed.unwrap_or(0));
        ends.max(self.commanded + REMEMBERED)
    }
}

/// All that a store keeps for one key and policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) counters: SmallVec<[Counter; 1]>,
    /// The counters of former quotas. Processes that still have these quotas go on with them, also if their calls and
    /// those under the new quotas take turns.
    pub(crate) former: Vec<Counter>,
    pub(crate) announced: Vec<Announcement>,
    pub(crate) tags: Vec<Tag>,
    pub(crate) hold: Option<Box<Hold>>,
    pub(crate) life: Option<Box<Life>>,
}

/// The part of the state by which strict recovery finds a loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Life {
    /// When this state began. It begins again after a loss.
    pub(crate) generation: u64,
    /// How often this generation was written.
    pub(crate) version: u64,
    /// When it was written last.
    pub(crate) written: u64,
    /// The server that wrote it.
    pub(crate) server: u64,
    /// Nothing departs until then, as departures may have been lost.
    pub(crate) quarantined_until: u64,
    /// It is kept until then, though departures were returned: processes that saw it expect it.
    pub(crate) kept_until: u64,
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

/// A number of intervals as a time, of ten years at most.
fn span(count: u64, interval: u64) -> u64 {
    count.saturating_mul(interval).min(LONGEST_SPAN)
}

impl State {
    /// A state under these quotas in which nothing was recorded.
    pub(crate) fn new(quotas: &[Counter]) -> Self {
        Self {
            counters: quotas.into(),
            ..Self::default()
        }
    }

    /// Continues under other quotas. Each takes over the departures of the counter of the same algorithm with the same
    /// window, else with the next longer one, else with the longest, or starts from zero. Counters of other windows and
    /// algorithms are kept for processes that still have the former quotas.
    pub(crate) fn continue_as(&mut self, quotas: &[Counter]) {
        if are_alike(&self.counters, quotas) {
            for (counter, quota) in self.counters.iter_mut().zip(quotas) {
                counter.continue_as(quota);
            }
            return;
        }
        let units = |counters: &[Counter]| units_of(counters.iter().map(|it| it.unit().name));
        let has_other_units = units(&self.counters) != units(quotas);
        let mut old: Vec<Counter> = std::mem::take(&mut self.counters).into_vec();
        old.append(&mut self.former);
        let mut is_former = vec![true; old.len()];
        let continued = quotas.iter().map(|quota| {
            let all = old.iter().zip(0..).filter_map(|(counter, place)| {
                let (mut counter, span) = (counter.clone(), counter.span());
                let distance = (span < quota.span(), span.abs_diff(quota.span()), place);
                counter.continue_as(quota).then_some((distance, counter))
            });
            let nearest = all.min_by_key(|(distance, _)| *distance);
            nearest.map_or_else(
                || quota.clone(),
                |((.., place), counter)| {
                    is_former[place] &= old[place].span() != counter.span();
                    counter
                },
            )
        });
        self.counters = continued.collect();
        // Not all of these counters have recorded what could be taken back.
        self.announced.iter_mut().for_each(|it| it.granted.clear());
        if has_other_units {
            // The units have other numbers: processes announce their demand again.
            self.announced
                .iter_mut()
                .for_each(|it| it.demand = Demand::default());
            self.tags.clear();
            self.hold
                .iter_mut()
                .for_each(|hold| hold.allowed = Default::default());
        }
        let former = old.into_iter().zip(is_former);
        self.former = former
            .filter_map(|(counter, is)| is.then_some(counter))
            .collect();
        // If there are too many, those that expire first are dropped.
        self.former.sort_by_key(|it| Reverse(it.expires()));
        self.former.truncate(MOST_FORMER);
    }

    /// Grants departures and keeps the rest of the demand.
    pub(crate) fn take(&mut self, buffer: u64, take: &Take, now: u64) -> Taken {
        if take.mode == Mode::Peek {
            return self.peek(buffer, take, now);
        }
        self.drop_expired(now);
        let is_outdated = |it: &Concurrent| it.is_outdated(take.process, take.number);
        if self.places().is_some_and(is_outdated) {
            return Taken {
                is_outdated: true,
                ..Taken::default()
            };
        }
        let corrections = &take.corrections;
        let mut corrected = corrections.moved + corrections.charged();
        // The announcement of this process, if it holds grants alone.
        let mut idle = None;
        let mut before = self.announced.iter();
        if let Some(place) = before.position(|it| it.process == take.process) {
            if take.number != 0 && self.announced[place].number >= take.number {
                return Taken {
                    is_outdated: true,
                    ..Taken::default()
                };
            }
            let last = self.announced.swap_remove(place);
            if corrections.is_empty() {
                idle = Some(last).filter(|it| it.demand.is_empty() && !it.granted.is_empty());
            } else if corrections.lost != 0 && last.number >= corrections.lost {
                for granted in last.granted {
                    corrected -= granted.units.total();
                    for (unit, units) in granted.units.each() {
                        self.settle(&Settlement {
                            recorded: granted.recorded,
                            unit,
                            difference: -i64::from(units),
                        });
                    }
                }
            }
        }
        let settlements = corrections.settlements.iter();
        settlements.for_each(|it| self.settle(it));
        let places = self.places_mut();
        let released = places.map_or(0, |it| {
            it.report(take.process, take.number, take.holding.units, now)
        });
        let terms = take.terms(buffer, now);
        let until = now + take.horizon;
        let announced = std::mem::take(&mut self.announced);
        let others = self.others(&announced, &terms, take);
        let requests = self.share(&terms, &others, &take.demand, until);
        let (grants, granted) = self.grant(&terms, &take.demand, requests, until);
        let units: Units = granted.iter().map(|it| Units::from(it.units)).sum();
        let mut taken = self.answer(&terms, &others, take, units);
        taken.grants = grants;
        taken.overtakes = Others::can_be_overtaken(&announced, take, now);
        let rest = match take.mode {
            Mode::Wait => take.demand.without(units),
            Mode::Try | Mode::Peek => Demand::default(),
        };
        if !rest.is_empty() {
            let last = taken.expected.last().copied().unwrap_or(now);
            let behind = (units, &rest);
            taken.next_call = self.next_call(&terms, &others, behind, take, last);
        }
        let all = units.total() as f64;
        self.tags = others.tags_after(&self.tags, all, corrected as f64, !rest.is_empty());
        let is_fair = others.are_fair();
        drop(others);
        self.announced = announced;
        let mut free = corrections.returned().without(units);
        if released > 0
            && let Some(places) = self.places()
        {
            free.0[usize::from(places.unit.number)] = places.free();
        }
        taken.next = self.next(&terms, &rest, take, free, is_fair);
        let can_be_lost = take.number != 0 && !granted.is_empty();
        // An earlier call that arrives late must not take places again, or departures for requests that are gone.
        let may_be_late = take.number != 0 && (released > 0 || corrections.lost != 0);
        if can_be_lost || may_be_late || !rest.is_empty() {
            self.announced.push(Announcement {
                process: take.process,
                flow: take.flow.id,
                number: take.number,
                deadline: Announcement::deadline(taken.next_call.max(now), take.round_trip),
                demand: rest,
                granted: if can_be_lost {
                    granted
                } else {
                    SmallVec::new()
                },
            });
        } else {
            // A call that changes nothing leaves the grants that may be taken back.
            self.announced.extend(idle);
        }
        self.places_mut().map(Concurrent::end_call);
        self.written(now);
        taken.known = self.life.as_ref().map(|life| Known {
            generation: life.generation,
            version: life.version,
        });
        taken
    }

    /// The places of requests in progress, if a quota limits how many there are.
    fn places(&self) -> Option<&Concurrent> {
        self.counters.iter().find_map(|counter| match counter {
            Counter::Concurrent(it) => Some(it),
            _ => None,
        })
    }

    fn places_mut(&mut self) -> Option<&mut Concurrent> {
        self.counters.iter_mut().find_map(|counter| match counter {
            Counter::Concurrent(it) => Some(it),
            _ => None,
        })
    }

    /// Lets one request depart now, or nothing, as [`take`](Self::take) does with [`Take::one`] and without strict
    /// recovery, in a third of the time. `None` if other processes have called.
    #[inline]
    pub(crate) fn try_one(&mut self, hold: u64, cost: Costs, now: u64) -> Option<Attempt> {
        if !self.announced.is_empty() || !self.former.is_empty() {
            self.drop_expired(now);
            if !self.announced.is_empty() {
                return None;
            }
        }
        let terms = Terms {
            now,
            round_trip: 0,
            hold,
            horizon: 0,
        };
        let counters = self.counters.iter_mut();
        let mut earliest = counters.fold(now, |at, it| at.max(it.earliest_now(&cost, &terms)));
        if earliest > now || self.hold.is_some() || self.life.is_some() {
            earliest = self.earliest(&terms, now, Units::default(), cost.into());
        }
        let recorded = (earliest == now).then(|| terms.recorded(now));
        if let Some(recorded) = recorded {
            self.record(now, recorded, cost);
        }
        let (remaining, reset) = self.left(&terms);
        Some(Attempt {
            recorded,
            earliest,
            remaining,
            reset,
        })
    }

    /// Begins a new generation, in quarantine, if departures may have been lost.
    pub(crate) fn verify(&mut self, buffer: u64, take: &Take, origin: Origin, now: u64) {
        let Some(strict) = &take.strict else {
            return;
        };
        let quarantine = || take.quarantine(&self.counters, buffer);
        let since = match &mut self.life {
            None if strict.known.is_none() && !strict.clock_was_set => origin.since,
            Some(life) if !strict.clock_was_set => {
                let seen = strict.known.map(|known| (known.generation, known.version));
                let is_older = seen.is_some_and(|seen| seen > (life.generation, life.version));
                if !is_older && life.server == origin.server && life.written <= now {
                    // The process that began this generation may not have known of the loss, or of a longer window.
                    if strict
                        .known
                        .is_some_and(|it| it.generation < life.generation)
                    {
                        let until = life.generation + quarantine();
                        life.quarantined_until = life.quarantined_until.max(until);
                    }
                    return;
                }
                now
            }
            _ => now,
        };
        let until = since + quarantine();
        self.clear();
        self.life = Some(Box::new(Life {
            generation: now,
            server: origin.server,
            quarantined_until: if until > now { until } else { 0 },
            ..Life::default()
        }));
    }

    /// Counts a write.
    fn written(&mut self, now: u64) {
        if let Some(life) = &mut self.life {
            life.version += 1;
            life.written = now;
        }
    }

    fn quarantined_until(&self) -> u64 {
        self.life.as_ref().map_or(0, |life| life.quarantined_until)
    }

    fn peek(&self, buffer: u64, take: &Take, now: u64) -> Taken {
        let mut copy = self.clone();
        copy.drop_expired(now);
        copy.announced.retain(|it| it.process != take.process);
        let settlements = take.corrections.settlements.iter();
        settlements.for_each(|it| copy.settle(it));
        let terms = take.terms(buffer, now);
        let others = copy.others(&copy.announced, &terms, take);
        copy.answer(&terms, &others, take, Units::default())
    }

    /// Forgets all departures, also those that could be taken back.
    fn clear(&mut self) {
        self.counters.iter_mut().for_each(|it| it.clear());
        self.former.clear();
        self.announced.iter_mut().for_each(|it| it.granted.clear());
    }

    /// Corrects a past departure.
    fn settle(&mut self, settlement: &Settlement) {
        let counters = self.counters.iter_mut();
        let counters = counters.filter(|it| it.nth() == settlement.unit);
        counters.for_each(|it| it.settle(settlement));
    }

    /// Applies a command.
    pub(crate) fn control(&mut self, command: Command, now: u64) -> Taken {
        self.drop_expired(now);
        let mut hold = self.hold.as_deref().copied().unwrap_or_default();
        match command {
            Command::Pause { evidence, .. } | Command::Allow { evidence, .. }
                if evidence < hold.commanded =>
            {
                return self.summary(now);
            }
            Command::Pause { span, .. } => {
                hold.paused_until = hold.paused_until.max(now + span.min(LONGEST_SPAN));
            }
            Command::Allow {
                unit, units, span, ..
            } => {
                let (allowed, until) = hold.allowed[unit];
                if now >= until || units < allowed {
                    hold.allowed[unit] = (units, now + span.min(LONGEST_SPAN));
                }
            }
            Command::Resume => hold = Hold::default(),
            Command::Reset => {
                hold = Hold::default();
                self.clear();
                self.tags.clear();
                if let Some(life) = &mut self.life {
                    life.quarantined_until = 0;
                }
            }
        }
        if !matches!(command, Command::Allow { .. }) {
            hold.commanded = now;
        }
        self.hold = Some(Box::new(hold));
        self.written(now);
        let answer = self.summary(now);
        self.places_mut().map(Concurrent::end_call);
        answer
    }

    /// The answer where no departures are asked for.
    fn summary(&self, now: u64) -> Taken {
        let terms = Take::default().terms(0, now);
        self.answer(
            &terms,
            &Others::default(),
            &Take::default(),
            Units::default(),
        )
    }

    /// Nothing departs until then.
    fn held_until(&self) -> u64 {
        self.paused_until().max(self.quarantined_until())
    }

    /// The end of the pause; 0 if there is none.
    pub(crate) fn paused_until(&self) -> u64 {
        self.hold.as_ref().map_or(0, |hold| hold.paused_until)
    }

    /// The time at which the state is as good as none.
    pub(crate) fn expires(&self) -> u64 {
        let counters = self.counters.iter().chain(&self.former);
        let counters = counters.map(|counter| counter.expires());
        let announced = self.announced.iter().map(Announcement::expires);
        let hold = self.hold.iter().map(|hold| hold.expires());
        let life = self.life.iter();
        let life = life.map(|life| life.quarantined_until.max(life.kept_until));
        let rest = announced.chain(hold).chain(life);
        counters.chain(rest).max().unwrap_or(0)
    }

    #[inline(always)]
    pub(crate) fn drop_expired(&mut self, now: u64) {
        self.counters.iter_mut().for_each(|it| it.drop_expired(now));
        if !self.former.is_empty() && self.former.iter().all(|it| it.expires() <= now) {
            self.former.clear();
        }
        if !self.announced.is_empty() {
            self.announced.retain(|it| now < it.expires());
        }
    }

    /// The processes that may be ahead of this one. If the next request of one cannot depart within the horizon because of a
    /// unit in which this demand costs nothing, only that request is ahead: what it needs of other units is kept for it.
    fn others<'a>(&self, announced: &'a [Announcement], terms: &Terms, take: &Take) -> Others<'a> {
        let until = terms.now + take.horizon;
        let until = until.max(self.held_until());
        let mine = take.demand.units();
        let is_held_up = |other: &&Announcement| {
            let elsewhere = other.demand.first_cost();
            let elsewhere = elsewhere.zip(mine, |theirs, mine| if mine > 0 { 0 } else { theirs });
            let waits = !other.demand.is_empty() && !elsewhere.is_zero();
            waits && self.earliest(terms, terms.now, Units::default(), elsewhere) > until
        };
        let announced = announced.iter().map(|other| match is_held_up(&other) {
            true => Cow::Owned(other.only_first()),
            false => Cow::Borrowed(other),
        });
        Others::new(announced, &self.tags, take, terms.now)
    }

    /// How many of the first requests may depart until then, after all that arrived before them.
    fn share(&self, terms: &Terms, others: &Others<'_>, demand: &Demand, until: u64) -> u64 {
        if others.are_none() {
            return demand.requests();
        }
        let (mut most, mut too_many) = (0, demand.requests() + 1);
        while most + 1 < too_many {
            let middle = (most + too_many) / 2;
            let (before, units) = (demand.units_of(middle - 1), demand.units_of(middle));
            let arrival = demand.arrival_of(units);
            // Behind those before it, it needs room in each of their units.
            let cost = (units - before).zip(units.at_most_one(), u64::max);
            let own = units - cost;
            let departs = |ahead| self.earliest(terms, terms.now, ahead + own, cost);
            let others = |which| others.ahead(arrival, own, which);
            let is_due = departs(others(Ahead::Until(until))) <= until
                || departs(others(Ahead::OnTime)) == terms.now;
            if is_due {
                most = middle;
            } else {
                too_many = middle;
            }
        }
        most
    }

    /// Grants the first of so many requests that may depart until then; and the units of each grant.
    fn grant(
        &mut self,
        terms: &Terms,
        demand: &Demand,
        requests: u64,
        until: u64,
    ) -> (SmallVec<[Grant; 1]>, SmallVec<[Recorded; 1]>) {
        let (mut grants, mut granted) = (SmallVec::new(), SmallVec::new());
        let mut count = 0;
        let mut at = terms.now;
        while count < requests && grants.len() < MOST_GRANTS {
            let cost = demand.units_of(count + 1) - demand.units_of(count);
            at = self.earliest(terms, at, Units::default(), cost);
            if at > until {
                break;
            }
            let cost = cost.as_costs();
            let together = match requests - count {
                left if demand.cost.is_zero() || left == 1 => 1,
                left => self.fits_at(terms, at, cost).min(left),
            };
            let (recorded, requests) = (terms.recorded(at), together as u32);
            let units = cost * requests;
            self.record(at, recorded, units);
            grants.push(Grant {
                at,
                recorded,
                requests,
            });
            granted.push(Recorded { recorded, units });
            count += together;
        }
        (grants, granted)
    }

    /// The first time at which a request may depart under all quotas jointly; see [`Algorithm::earliest`].
    pub(crate) fn earliest(&self, terms: &Terms, from: u64, ahead: Units, cost: Units) -> u64 {
        let mut at = from.max(self.held_until());
        for _ in 0..MOST_ROUNDS {
            let mut next = at;
            for counter in &self.counters {
                let (ahead, cost) = (ahead.0[counter.nth()], cost.0[counter.nth()]);
                if cost > 0 {
                    next = next.max(counter.earliest(at, ahead, cost, terms));
                }
            }
            if let Some(hold) = &self.hold {
                for (nth, &(allowed, until)) in hold.allowed.iter().enumerate() {
                    if cost.0[nth] > 0 && u64::from(allowed) < ahead.0[nth] + cost.0[nth] {
                        next = next.max(until);
                    }
                }
            }
            if next == at || !ahead.is_zero() {
                return next;
            }
            at = next;
        }
        at + LONGEST_SPAN
    }

    /// The places, if a request waits for one alone, which is expected to depart then.
    fn full(&self, terms: &Terms, departs: u64, ahead: Units, cost: Units) -> Option<&Concurrent> {
        let places = self.places().filter(|_| departs == terms.beyond())?;
        let unit = usize::from(places.unit.number);
        places
            .is_full(ahead.0[unit], cost.0[unit])
            .then_some(places)
    }

    /// How many requests of this cost may depart together at `at`, where one may.
    fn fits_at(&self, terms: &Terms, at: u64, cost: Costs) -> u64 {
        let mut fits = u64::MAX;
        for counter in &self.counters {
            let cost = cost.0[counter.nth()];
            if cost > 0 {
                fits = fits.min(counter.fits(at, cost, terms));
            }
        }
        if let Some(hold) = &self.hold {
            for (nth, cost) in cost.each() {
                let (allowed, until) = hold.allowed[nth];
                if at < until {
                    fits = fits.min(u64::from(allowed / cost));
                }
            }
        }
        fits
    }

    #[inline]
    fn record(&mut self, at: u64, recorded: u64, units: Costs) {
        let counters = self.counters.iter_mut();
        counters.for_each(|it| it.record(at, recorded, &units));
        if let Some(hold) = &mut self.hold {
            for (nth, units) in units.each() {
                let (allowed, until) = &mut hold.allowed[nth];
                if at < *until {
                    *allowed -= units;
                }
            }
        }
    }

    /// The answer but for grants and the next call, after so many units were granted.
    fn answer(&self, terms: &Terms, others: &Others<'_>, take: &Take, granted: Units) -> Taken {
        let expected = take.demand.points_from(granted).map(|(point, cost)| {
            let own = point.units - cost;
            let ahead = others.ahead(point.arrival, own, Ahead::All) + own - granted;
            let departs = self.earliest(terms, terms.now, ahead, cost);
            // A request that waits for a place may get one at once.
            match take.mode == Mode::Wait && self.full(terms, departs, ahead, cost).is_some() {
                true => terms.now,
                false => departs,
            }
        });
        let expected = expected.collect();
        let (remaining, reset) = self.left(terms);
        Taken {
            remaining,
            reset,
            expected,
            paused_until: self.paused_until(),
            quarantined_until: self.quarantined_until(),
            occupancy: self.places().map(Concurrent::occupancy).unwrap_or_default(),
            ..Taken::default()
        }
    }

    /// How much of each unit may depart now, and when all units are available again.
    #[inline(always)]
    fn left(&self, terms: &Terms) -> (Costs, u64) {
        let (mut remaining, mut reset) = ([None::<u32>; MOST_UNITS], 0);
        for counter in &self.counters {
            let (nth, units, resets) = counter.left(terms);
            let units = u32::try_from(units).unwrap_or(u32::MAX);
            remaining[nth] = Some(remaining[nth].map_or(units, |least| least.min(units)));
            reset = reset.max(resets);
        }
        let mut remaining = Costs(remaining.map(Option::unwrap_or_default));
        if terms.now < self.held_until() {
            remaining = Costs::default();
        }
        if let Some(hold) = &self.hold {
            for (left, &(allowed, until)) in remaining.0.iter_mut().zip(&hold.allowed) {
                if terms.now < until {
                    *left = (*left).min(allowed);
                }
            }
        }
        (remaining, reset)
    }

    /// The processes to nudge after a call with this rest. If the call set units free: the processes in order, until their
    /// demand covers these units, and one more, as one may be dead. It skips those that wait for another unit, and those that
    /// call in time. With shares or reserves, the order is not known: all. Otherwise: the process of the first request, if
    /// that can depart much earlier than the process calls. If nudges arrive, the processes count as overdue soon.
    fn next(
        &mut self,
        terms: &Terms,
        rest: &Demand,
        take: &Take,
        free: Units,
        is_fair: bool,
    ) -> Vec<u64> {
        let is_free = !free.is_zero();
        let (is_any, late) = match is_free {
            true => (is_fair, 0),
            false => (false, UNAWARE + 2 * take.round_trip),
        };
        let order = |process, flow, demand: &Demand| {
            let lead = if is_fair {
                order::lead(&self.tags, process, flow)
            } else {
                0.0
            };
            (level(process), lead, demand.oldest(), process)
        };
        // By a unit that was not set free.
        let is_held_up = |cost: Units| {
            let elsewhere = cost.zip(free, |cost, free| if free > 0 { 0 } else { cost });
            let opens = || self.earliest(terms, terms.now, Units::default(), elsewhere);
            is_free && !elsewhere.is_zero() && opens() >= terms.beyond()
        };
        let announced = self.announced.iter().enumerate();
        let waiting = announced.filter(|(_, it)| !it.demand.is_empty() && terms.now <= it.deadline);
        let mut waiting: Vec<_> = waiting
            .map(|(nth, it)| (order(it.process, it.flow, &it.demand), nth))
            .collect();
        waiting.sort_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
        let is_own = !rest.is_empty() && !is_any && !is_held_up(rest.first_cost());
        let own = is_own.then(|| order(take.process, take.flow.id, rest));
        let (mut next, mut ahead, mut previous) = (Vec::new(), Units::default(), Units::default());
        for (order, nth) in waiting {
            let it = &self.announced[nth];
            let cost = it.demand.first_cost();
            if own.is_some_and(|own| own < order) || next.len() == MOST_NEXT {
                break;
            }
            if is_held_up(cost) {
                // Its cost in other units is kept for it.
                ahead += if is_any { Units::default() } else { cost };
                continue;
            }
            let is_last = free.without(ahead).is_zero();
            // The last one may depart if the process ahead of it is dead.
            let before = if is_last { previous } else { ahead };
            let opens = self.earliest(terms, terms.now, before, cost);
            let is_later = match is_free {
                true => opens >= terms.beyond(),
                false => self.full(terms, opens, before, cost).is_some(),
            };
            if !is_later && it.deadline > opens + late {
                next.push((nth, opens.max(terms.now) + SOON + 2 * take.round_trip));
            }
            if is_last {
                break;
            }
            previous = ahead;
            if !is_any {
                ahead += it.demand.units();
            }
        }
        if next.is_empty() && is_free {
            return self.next(terms, rest, take, Units::default(), is_fair);
        }
        let nudged = next.into_iter().map(|(nth, soon)| {
            let it = &mut self.announced[nth];
            if take.holding.is_notified {
                it.deadline = it.deadline.min(soon);
            }
            it.process
        });
        nudged.collect()
    }

    /// When a process has to call again for the requests that it has left behind those granted, of which the last one is
    /// expected to depart at `last`.
    fn next_call(
        &self,
        terms: &Terms,
        others: &Others<'_>,
        (granted, rest): (Units, &Demand),
        take: &Take,
        last: u64,
    ) -> u64 {
        let now = terms.now;
        let first = rest.oldest();
        let ahead = others.ahead(first, granted, Ahead::All);
        let opens = |ahead| self.earliest(terms, now, ahead, rest.units_of(1));
        let opening = opens(ahead);
        let early = |at: u64| at.saturating_sub(take.horizon / 2);
        let by_process = others.by_process(first);
        let mut silence = (last - now) / 4;
        if !take.holding.is_notified {
            // If a process ahead is gone, or has cancelled its requests, no departure stays unused.
            let each = by_process.values().copied();
            let most = each.fold(Units::default(), |most, units| most.zip(units, u64::max));
            let without_one = early(opens(ahead.without(most)));
            silence = silence.min(without_one.saturating_sub(now));
        }
        let silence = LONGEST_SILENCE.max(silence);
        let call = match self.full(terms, opening, ahead, rest.units_of(1)) {
            Some(places) => {
                let look = concurrent::look(take.holding, others.before(first), now);
                places.first_end().map_or(look, |end| look.min(end))
            }
            None => early(opening),
        };
        // If a process ahead has crashed, its capacity is free at its deadline, or when it opens.
        let watched = others.watched(first);
        let watched = watched.map(|(at, process)| {
            let units = by_process.get(&process).copied().unwrap_or_default();
            at.max(opens(ahead.without(units)))
        });
        let call = call.min(now + silence).min(watched.min().unwrap_or(call));
        call.max(now + SOONEST_CALL)
    }
}

/// How long the last command is remembered, so that answers to older requests are ignored.
const REMEMBERED: u64 = 60_000_000;
