//! The cost of a request and its other options, and what is left: [`Cost`], [`RequestOptions`] and [`Remaining`].

use std::fmt;

use http::Extensions;
use smallvec::SmallVec;

use crate::algorithm::Costs;
use crate::priority::{Priority, Share};
use crate::quota::{REQUESTS, UnitNames};

/// The cost of a request, in each unit that it names.
///
/// Default: nothing is named, so the request has the [default cost](crate::Quota::default_cost) in each unit: in requests, 1 unless
/// the quotas set another. A number is a cost in requests, and `("tokens", 5)` one in tokens.
///
/// ```
/// use tower_throttle::Cost;
///
/// let cost = Cost::default().of("tokens", 1_200);
/// assert_eq!(cost, Cost::from(("tokens", 1_200)));
/// assert_eq!(Cost::from(5), Cost::default().of("requests", 5));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct Cost(SmallVec<[(&'static str, u32); 1]>);

impl Cost {
    /// Sets the cost in this unit.
    pub fn of(mut self, unit: &'static str, cost: u32) -> Self {
        self.set(unit, cost);
        self
    }

    pub(crate) fn set(&mut self, unit: &'static str, cost: u32) {
        match self.0.binary_search_by_key(&unit, |it| it.0) {
            Ok(nth) => self.0[nth].1 = cost,
            Err(nth) => self.0.insert(nth, (unit, cost)),
        }
    }

    /// Returns true if it names no unit.
    pub(crate) fn is_default(&self) -> bool {
        self.0.is_empty()
    }

    /// The named units and their costs.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.0.iter().copied()
    }

    /// The part of the cost in these units.
    pub(crate) fn within(&self, units: UnitNames) -> Self {
        Self(
            self.each()
                .filter(|(unit, _)| units.contains(unit))
                .collect(),
        )
    }

    /// The cost in requests.
    pub(crate) fn requests(&self) -> u32 {
        self.of_unit(REQUESTS).unwrap_or(1)
    }

    /// The cost that is named in this unit.
    pub(crate) fn of_unit(&self, unit: &str) -> Option<u32> {
        self.each().find(|it| it.0 == unit).map(|it| it.1)
    }
}

/// A cost in one unit.
impl From<(&'static str, u32)> for Cost {
    fn from((unit, cost): (&'static str, u32)) -> Self {
        Self::default().of(unit, cost)
    }
}

/// A cost in requests.
impl From<u32> for Cost {
    fn from(cost: u32) -> Self {
        Self::default().of(REQUESTS, cost)
    }
}

/// How much is left of each unit, by its name. Requests are first.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Remaining {
    pub(crate) units: UnitNames,
    pub(crate) left: Costs,
}

impl Remaining {
    pub(crate) fn new(units: UnitNames, left: Costs) -> Self {
        Self { units, left }
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        self.units.iter().copied().zip(self.left.0)
    }

    pub(crate) fn of(&self, unit: &str) -> Option<u32> {
        let nth = self.units.iter().position(|name| *name == unit)?;
        Some(self.left.0[nth])
    }
}

impl fmt::Debug for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.each()).finish()
    }
}

/// The options that a request determines itself, beside its key. Default: none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct RequestOptions {
    pub(crate) cost: Option<Cost>,
    pub(crate) priority: Option<Priority>,
    pub(crate) share: Option<Share>,
}

impl RequestOptions {
    /// The [`Cost`], the [`Priority`] and the [`Share`] in the extensions of a request.
    pub fn of(extensions: &Extensions) -> Self {
        Self {
            cost: extensions.get().cloned(),
            priority: extensions.get().copied(),
            share: extensions.get().cloned(),
        }
    }

    /// Sets the cost.
    pub fn cost(mut self, cost: impl Into<Cost>) -> Self {
        self.cost = Some(cost.into());
        self
    }

    /// Sets the priority.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets the share.
    pub fn share(mut self, share: Share) -> Self {
        self.share = Some(share);
        self
    }

    /// These options, and the others where these are not set.
    #[inline]
    pub fn or(self, others: Self) -> Self {
        Self {
            cost: self.cost.or(others.cost),
            priority: self.priority.or(others.priority),
            share: self.share.or(others.share),
        }
    }
}
