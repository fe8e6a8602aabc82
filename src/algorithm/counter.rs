//! A quota with its recorded departures: [`Counter`], and what its algorithms have in common: [`Algorithm`].

use std::mem::discriminant;

use smallvec::SmallVec;

use super::{Concurrent, Costs, Fixed, Gcra, Settlement, Times, Window};
use crate::quota::{self, Quota, WindowStart, units_of};

/// The numbers of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// The most units that may depart at once or be in progress, so the most that one request may cost.
    pub(crate) units: u32,
    /// The window, the interval between two units, or the lease, in microseconds.
    pub(crate) span: u64,
}

/// How the departures of a quota of some size are counted. Another algorithm is another implementation, in Rust and in Lua.
pub(super) trait Algorithm {
    /// Forgets departures that no longer count.
    fn drop_expired(&mut self, _size: Size, _now: u64) {}

    /// The first time from `from` on at which a request of this cost may depart, behind so many units that are ahead
    /// of it. If there are any, it is an estimate, which may be early, never late.
    fn earliest(&self, size: Size, from: u64, ahead: u64, cost: u64, times: &Times) -> u64;

    /// How many requests of this cost may depart together at `at`, which is a time that `earliest` has named. It may be
    /// none if that is not now.
    fn fits(&self, size: Size, at: u64, cost: u32, times: &Times) -> u64;

    /// How many units may depart now.
    fn remaining(&self, size: Size, times: &Times) -> u64 {
        match self.earliest(size, times.now, 0, 1, times) == times.now {
            true => self.fits(size, times.now, 1, times),
            false => 0,
        }
    }

    /// Records a departure that happens at any time from `at` to `recorded`: the bound has to hold for each.
    fn take(&mut self, size: Size, at: u64, recorded: u64, units: u32);

    /// Records a departure under other quotas, which may be more than this one allows.
    fn take_other(&mut self, size: Size, at: u64, recorded: u64, units: u32) {
        self.take(size, at, recorded, units);
    }

    /// Corrects a recorded departure. One that is not found stays as it is.
    fn settle(&mut self, size: Size, settled: &Settlement);

    /// The time at which the counter is as good as a new one.
    fn expires(&self, size: Size) -> u64;

    /// When all units are available again.
    fn resets(&self, size: Size) -> u64 {
        self.expires(size)
    }

    /// The latest recorded time of a departure, or 0.
    fn latest(&self) -> u64;

    /// Forgets all departures.
    fn clear(&mut self);

    /// How long a departure counts.
    fn memory(&self, size: Size) -> u64 {
        size.span
    }
}

/// A quota with its recorded departures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) unit: &'static str,
    /// The number of its unit among those of the policy.
    pub(super) number: u8,
    pub(super) size: Size,
    pub(crate) tally: Tally,
}

/// The recorded departures, as an algorithm counts them.
#[derive(Debug, Clone, PartialEq, Eq)]
// A tag of its own makes each match cheaper than one in the capacity of a log.
#[repr(u8)]
pub(crate) enum Tally {
    Window(Window),
    Gcra(Gcra),
    Fixed(Fixed),
    Concurrent(Concurrent),
}

/// Uses the tally, whichever algorithm it has. Unlike a pointer to its methods, this can be inlined.
macro_rules! counted {
    ($tally:expr, $it:ident => $use:expr) => {
        match $tally {
            Tally::Window($it) => $use,
            Tally::Gcra($it) => $use,
            Tally::Fixed($it) => $use,
            Tally::Concurrent($it) => $use,
        }
    };
}

impl Counter {
    /// The counter of a quota, in which nothing was recorded.
    pub(crate) fn new(quota: &Quota) -> Self {
        use quota::Algorithm::{
            Concurrent as Places, FixedWindow, Gcra as Rate, LeakyBucket, SlidingBuckets,
            SlidingLog, Spacing,
        };
        let window = quota.window().as_micros() as u64;
        let span = match quota.counted_by() {
            Rate { .. } | Spacing | LeakyBucket { .. } => window.div_ceil(quota.limit().into()),
            SlidingLog | SlidingBuckets { .. } | FixedWindow { .. } | Places { .. } => window,
        };
        let units = quota.largest_cost();
        let size = Size { units, span };
        let tally = match quota.counted_by() {
            SlidingLog => Tally::Window(Window::new(size)),
            SlidingBuckets { buckets } => {
                // Departures within one bucket are counted together, at its end.
                Tally::Window(Window::with_grain(size, span.div_ceil(buckets.into())))
            }
            FixedWindow { start } => Tally::Fixed(Fixed {
                aligned: start == WindowStart::Clock,
                ..Fixed::default()
            }),
            Places { .. } => Tally::Concurrent(Concurrent::default()),
            Rate { .. } => Tally::Gcra(Gcra::default()),
            Spacing | LeakyBucket { .. } => Tally::Gcra(Gcra {
                spaced: true,
                ..Gcra::default()
            }),
        };
        Self {
            unit: quota.unit_name(),
            number: 0,
            size,
            tally,
        }
    }

    /// The number of its unit among those of the policy.
    pub(crate) fn nth(&self) -> usize {
        self.number.into()
    }

    /// Forgets what no longer counts, and returns when a request may depart, if it costs anything here.
    #[inline(always)]
    pub(super) fn earliest_now(&mut self, cost: &Costs, times: &Times) -> u64 {
        let (size, cost) = (self.size, cost.0[self.nth()]);
        counted!(&mut self.tally, it => {
            it.drop_expired(size, times.now);
            match cost {
                0 => times.now,
                cost => it.earliest(size, times.now, 0, cost.into(), times),
            }
        })
    }

    /// Records departures, if they cost anything here.
    #[inline(always)]
    pub(super) fn record(&mut self, at: u64, recorded: u64, units: u32) {
        if units > 0 {
            counted!(&mut self.tally, it => it.take(self.size, at, recorded, units));
        }
    }

    /// Records departures under other quotas, if they cost anything here.
    pub(super) fn record_other(&mut self, at: u64, recorded: u64, units: u32) {
        if units > 0 {
            counted!(&mut self.tally, it => it.take_other(self.size, at, recorded, units));
        }
    }

    /// How many units may depart now, and when all are available again.
    #[inline(always)]
    pub(super) fn availability(&self, times: &Times) -> (u64, u64) {
        let size = self.size;
        counted!(&self.tally, it => (it.remaining(size, times), it.resets(size)))
    }

    /// The time over which departures count. Places are no departures.
    pub(super) fn span(&self) -> u64 {
        match self.tally {
            Tally::Concurrent(_) => 0,
            _ => self.size.span,
        }
    }

    /// Returns true if this counter continues under the quota, with another limit alone.
    fn is_like(&self, quota: &Self) -> bool {
        self.number == quota.number && self.counts_like(quota)
    }

    /// Returns true if the other counter counts the same departures in the same way, whatever its limit.
    pub(super) fn counts_like(&self, other: &Self) -> bool {
        let is_alike = match (&self.tally, &other.tally) {
            (Tally::Fixed(it), Tally::Fixed(other)) => it.aligned == other.aligned,
            (it, other) => discriminant(it) == discriminant(other),
        };
        is_alike && self.unit == other.unit && self.span() == other.span()
    }

    /// Recorded times are rounded up to multiples of this.
    pub(crate) fn grain(&self) -> u64 {
        match &self.tally {
            Tally::Window(it) => it.grain,
            _ => 1,
        }
    }

    /// Stores the log as the other counter stores its own.
    pub(crate) fn store_like(&mut self, stored: &Self) {
        if let (Tally::Window(it), Tally::Window(stored)) = (&mut self.tally, &stored.tally) {
            it.has_ring = stored.has_ring;
        }
    }

    /// Takes the size of another quota and keeps the departures, if the algorithm is the same.
    pub(super) fn continue_as(&mut self, quota: &Self, now: u64) -> bool {
        let has_other_span = self.size.span != quota.size.span;
        match (&mut self.tally, &quota.tally) {
            _ if self.unit != quota.unit => return false,
            (Tally::Window(it), Tally::Window(other)) => {
                (it.grain, it.has_ring) = (other.grain, other.has_ring);
            }
            (Tally::Gcra(it), Tally::Gcra(other)) => {
                if has_other_span {
                    it.continue_with(self.size.span, quota.size, other.spaced);
                }
                it.spaced = other.spaced;
            }
            (Tally::Fixed(it), Tally::Fixed(other)) if it.aligned == other.aligned => {
                if has_other_span {
                    it.continue_with(quota.size, now);
                }
            }
            (Tally::Concurrent(_), Tally::Concurrent(_)) => {}
            _ => return false,
        }
        (self.number, self.size) = (quota.number, quota.size);
        true
    }

    #[inline]
    pub(crate) fn drop_expired(&mut self, now: u64) {
        counted!(&mut self.tally, it => it.drop_expired(self.size, now));
    }

    #[inline]
    pub(super) fn earliest(&self, from: u64, ahead: u64, cost: u64, times: &Times) -> u64 {
        counted!(&self.tally, it => it.earliest(self.size, from, ahead, cost, times))
    }

    #[inline]
    pub(super) fn fits(&self, at: u64, cost: u32, times: &Times) -> u64 {
        counted!(&self.tally, it => it.fits(self.size, at, cost, times))
    }

    pub(super) fn settle(&mut self, settled: &Settlement) {
        counted!(&mut self.tally, it => it.settle(self.size, settled));
    }

    pub(super) fn expires(&self) -> u64 {
        counted!(&self.tally, it => it.expires(self.size))
    }

    pub(super) fn latest(&self) -> u64 {
        counted!(&self.tally, it => it.latest())
    }

    pub(super) fn clear(&mut self) {
        counted!(&mut self.tally, it => it.clear());
    }

    pub(super) fn memory(&self) -> u64 {
        counted!(&self.tally, it => it.memory(self.size))
    }
}

/// Numbers the units of the counters of a policy, and returns their names.
pub(crate) fn number_units(counters: &mut [Counter]) -> SmallVec<[&'static str; 1]> {
    let units = units_of(counters.iter().map(|counter| counter.unit));
    for counter in counters {
        let number = units.iter().position(|unit| *unit == counter.unit);
        counter.number = number.unwrap_or(0) as u8;
    }
    units
}

/// Returns true if the counters continue under these quotas, each under its own.
pub(crate) fn are_alike(counters: &[Counter], quotas: &[Counter]) -> bool {
    let mut pairs = counters.iter().zip(quotas);
    counters.len() == quotas.len() && pairs.all(|(counter, quota)| counter.is_like(quota))
}
