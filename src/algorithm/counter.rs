//! A quota with its recorded departures: [`Counter`], and what its algorithms have in common: [`Algorithm`].

use std::mem::discriminant;

use smallvec::SmallVec;

use super::{Concurrent, Costs, Fixed, Gcra, Settlement, Terms, Window};
use crate::quota::{self, Quota, REQUESTS, units_of};

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
    pub(super) number: u8,
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

    pub(super) fn unit_mut(&mut self) -> &mut Unit {
        counted!(self, it => &mut it.unit)
    }

    /// The number of its unit among those of the policy.
    pub(crate) fn nth(&self) -> usize {
        self.unit().number.into()
    }

    /// Forgets what no longer counts, and returns when a request may depart, if it costs anything here.
    #[inline(always)]
    pub(super) fn earliest_now(&mut self, cost: &Costs, terms: &Terms) -> u64 {
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
    pub(super) fn record(&mut self, at: u64, recorded: u64, units: &Costs) {
        counted!(self, it => match units.0[usize::from(it.unit.number)] {
            0 => {}
            units => it.take(at, recorded, units),
        });
    }

    /// The number of its unit, how many units may depart now, and when all are available again.
    #[inline(always)]
    pub(super) fn left(&self, terms: &Terms) -> (usize, u64, u64) {
        counted!(self, it => (it.unit.number.into(), it.remaining(terms), it.resets()))
    }

    /// The time over which departures count.
    pub(super) fn span(&self) -> u64 {
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
    pub(super) fn continue_as(&mut self, quota: &Self, now: u64) -> bool {
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
                it.continue_as(quota, now);
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
