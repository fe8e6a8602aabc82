//! Amounts in each unit of a policy: [`Costs`] of one request, [`Units`] of many.

use std::ops::{Add, AddAssign, Mul, Sub};

use crate::quota::MOST_UNITS;

/// The last bits of the number of a process: its lane. To a store, each lane of a process is a process of its own. It has a
/// bit for each unit in which its requests cost something, the level of their priority, 0 for the highest, and the number
/// of their share in this process, 0 for requests without one.
pub(crate) const LANE_BITS: u32 = LEVEL_BITS.end + 4;

/// The bits of the level.
pub(crate) const LEVEL_BITS: std::ops::Range<u32> = MOST_UNITS as u32..MOST_UNITS as u32 + 3;

/// The shares of a key in one process, beside the requests without a share. The last one combines those beyond.
pub(crate) const MOST_SHARES: u64 = (1 << (LANE_BITS - LEVEL_BITS.end)) - 1;

/// The level of the requests of a process: 0 is the highest.
pub(crate) fn level(process: u64) -> u64 {
    (process % (1 << LEVEL_BITS.end)) >> LEVEL_BITS.start
}

/// The number of the share of the requests of a process: 0 if they have none.
pub(crate) fn share_number(process: u64) -> u64 {
    (process % (1 << LANE_BITS)) >> LEVEL_BITS.end
}

/// Returns true if requests of this process cost something in the unit.
pub(crate) fn costs_in(process: u64, unit: usize) -> bool {
    process & 1 << unit != 0
}

/// Returns true if requests of this process have a share.
pub(crate) fn has_share(process: u64) -> bool {
    share_number(process) > 0
}

/// The cost of one request in each unit of its policy, in the order of the units; 0 beyond them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Costs(pub(crate) [u32; MOST_UNITS]);

/// The cost of many requests in each unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Units(pub(crate) [u64; MOST_UNITS]);

impl Costs {
    pub(crate) fn is_zero(&self) -> bool {
        self.0 == [0; MOST_UNITS]
    }

    /// Returns true if no cost is higher than this one.
    pub(crate) fn is_within(&self, most: &Self) -> bool {
        self.0.iter().zip(&most.0).all(|(cost, most)| cost <= most)
    }

    /// The units in which it costs something, by their numbers.
    pub(crate) fn each(&self) -> impl Iterator<Item = (usize, u32)> + use<> {
        self.0.into_iter().enumerate().filter(|(_, cost)| *cost > 0)
    }

    /// The sum over all units.
    pub(crate) fn total(&self) -> i64 {
        self.0.iter().map(|&cost| i64::from(cost)).sum()
    }

    /// The lane of requests of this cost and level, and of the share with this number; see [`LANE_BITS`].
    pub(crate) fn lane(&self, level: u64, share: u64) -> u64 {
        let units = self.each().fold(0, |lane, (unit, _)| lane | 1 << unit);
        units | level << LEVEL_BITS.start | share << LEVEL_BITS.end
    }
}

/// A cost in the first unit.
impl From<u32> for Costs {
    fn from(cost: u32) -> Self {
        let mut costs = Self::default();
        costs.0[0] = cost;
        costs
    }
}

impl Units {
    /// The sum over all units, which grows with each request.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0 == [0; MOST_UNITS]
    }

    /// As much of each unit, but at most 1, for a request of unknown cost.
    pub(crate) fn at_most_one(self) -> Self {
        Self(self.0.map(|units| units.min(1)))
    }

    /// What is left of it without others.
    pub(crate) fn without(self, others: Self) -> Self {
        self.zip(others, u64::saturating_sub)
    }

    /// As the cost of one request.
    pub(crate) fn as_costs(&self) -> Costs {
        Costs(self.0.map(|units| u32::try_from(units).unwrap_or(u32::MAX)))
    }

    /// The pairs of two amounts, unit by unit.
    pub(crate) fn zip(self, other: Self, mut join: impl FnMut(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|nth| join(self.0[nth], other.0[nth])))
    }
}

impl From<Costs> for Units {
    fn from(costs: Costs) -> Self {
        Self(costs.0.map(u64::from))
    }
}

impl Add for Units {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        self.zip(more, |one, more| one + more)
    }
}

impl AddAssign for Units {
    fn add_assign(&mut self, more: Self) {
        *self = *self + more;
    }
}

impl std::iter::Sum for Units {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

impl Sub for Units {
    type Output = Self;

    fn sub(self, less: Self) -> Self {
        self.zip(less, |all, less| all - less)
    }
}

impl Mul<u64> for Units {
    type Output = Self;

    fn mul(self, count: u64) -> Self {
        Self(self.0.map(|units| units * count))
    }
}
