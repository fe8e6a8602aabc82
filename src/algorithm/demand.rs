//! The demand that processes announce.

use smallvec::SmallVec;

use super::{Costs, Units};
use crate::quota::MOST_UNITS;

/// The most points of a demand at even ranks, and the most requests of different costs that it describes.
const POINTS: usize = 8;

/// The waiting requests of one process and key: their number, their costs, and when they arrived.
///
/// Requests of one cost are described by at most eight points at even ranks, between which arrivals are interpolated.
/// Where costs differ, the first eight requests are described one by one, and only they can be granted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Demand {
    // One inline: most calls are for one request.
    pub(crate) points: SmallVec<[Point; 1]>,
    /// The cost of each request; zero where costs differ.
    pub cost: Costs,
}

/// A waiting request: when it arrived, and the units of all requests up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Point {
    pub(crate) arrival: u64,
    pub(crate) units: Units,
}

/// The amounts of units that have other numbers now. `numbers` has the former number of each, if there was one.
fn renumbered<T: Copy + Default>(
    amounts: [T; MOST_UNITS],
    numbers: &[Option<usize>],
) -> [T; MOST_UNITS] {
    let former = |nth: usize| numbers.get(nth).copied().flatten();
    std::array::from_fn(|nth| former(nth).map_or_else(T::default, |it| amounts[it]))
}

impl Demand {
    /// The demand of these requests: the arrival, in microseconds on the store's clock, and the cost of each, oldest
    /// first. A point that arrived before the point ahead of it counts as arrived then.
    pub fn new<C>(requests: impl ExactSizeIterator<Item = (u64, C)> + Clone) -> Self
    where
        C: Into<Costs>,
    {
        let requests = requests.map(|(arrival, cost)| (arrival, cost.into()));
        Self::with_arrivals(requests, |arrival| arrival)
    }

    /// The demand of these requests. Only the arrivals of its points are converted, as there may be many requests.
    pub(crate) fn with_arrivals<T>(
        requests: impl ExactSizeIterator<Item = (T, Costs)> + Clone,
        arrived: impl Fn(T) -> u64,
    ) -> Self {
        let count = requests.len();
        let Some((arrival, cost)) = requests.clone().next() else {
            return Self::default();
        };
        if count == 1 {
            return Self::single(arrived(arrival), cost);
        }
        let is_uniform = requests.clone().all(|(_, other)| other == cost);
        let mut rank_of_points = (0..POINTS)
            .map(|nth| (count - 1) * nth / (POINTS - 1))
            .peekable();
        let mut this = Self {
            points: SmallVec::with_capacity(count.min(POINTS)),
            cost: if is_uniform { cost } else { Costs::default() },
        };
        let (mut units, mut latest) = (Units::default(), 0);
        for (rank, (arrival, cost)) in requests.enumerate() {
            units += cost.into();
            let is_even = rank_of_points.next_if_eq(&rank).is_some();
            if is_even || (!is_uniform && rank < POINTS) {
                while rank_of_points.next_if(|&next| next <= rank).is_some() {}
                latest = arrived(arrival).max(latest);
                this.points.push(Point {
                    arrival: latest,
                    units,
                });
            }
        }
        this
    }

    /// Gives the units other numbers. Requests that cost nothing in these units are dropped.
    pub(crate) fn renumber(&mut self, numbers: &[Option<usize>]) {
        self.cost = Costs(renumbered(self.cost.0, numbers));
        let mut before = Units::default();
        self.points.retain(|point| {
            point.units = Units(renumbered(point.units.0, numbers));
            std::mem::replace(&mut before, point.units) != point.units
        });
    }

    /// One request.
    pub(crate) fn single(arrival: u64, cost: Costs) -> Self {
        let units = cost.into();
        let point = Point { arrival, units };
        Self {
            points: SmallVec::from_buf([point]),
            cost,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The units that wait.
    pub(crate) fn units(&self) -> Units {
        self.points.last().map(|it| it.units).unwrap_or_default()
    }

    /// The cost of the first request.
    pub(crate) fn first_cost(&self) -> Units {
        match (self.cost.is_zero(), self.points.first()) {
            (true, Some(first)) => first.units,
            _ => self.cost.into(),
        }
    }

    /// The most that one request costs in each unit, as far as the costs are described.
    pub(crate) fn largest_cost(&self) -> Costs {
        let costs = self.points_from(Units::default()).map(|(_, cost)| cost);
        let largest = costs.fold(Units::default(), |most, cost| most.zip(cost, u64::max));
        largest.as_costs()
    }

    pub(crate) fn oldest(&self) -> u64 {
        self.points.first().map_or(u64::MAX, |first| first.arrival)
    }

    /// The requests that can be granted by one call.
    pub fn requests(&self) -> u64 {
        match Units::from(self.cost).total() {
            0 => self.points.len().min(POINTS) as u64,
            cost => self.units().total() / cost,
        }
    }

    /// The units of the first so many requests.
    pub(crate) fn units_of(&self, requests: u64) -> Units {
        match requests.checked_sub(1) {
            Some(last) if self.cost.is_zero() => self.points[last as usize].units,
            _ => Units::from(self.cost) * requests,
        }
    }

    /// The points behind so many units, with the cost of the request there. Where that is unknown, it is 1 in each unit
    /// that it may cost. So it is where it is 0, as the request departs behind those before it.
    pub(crate) fn points_from(&self, units: Units) -> impl Iterator<Item = (Point, Units)> {
        let cost_at = move |nth: usize, point: &Point| match nth {
            _ if !self.cost.is_zero() => self.cost.into(),
            0 => point.units,
            1..POINTS => point.units - self.points[nth - 1].units,
            _ => Units::default(),
        };
        let points = self.points.iter().enumerate();
        let behind = points.filter(move |(_, point)| point.units.total() > units.total());
        behind.map(move |(nth, point)| {
            let least = (point.units - units).at_most_one();
            (*point, cost_at(nth, point).zip(least, u64::max))
        })
    }

    /// The units that had arrived by then.
    pub(crate) fn arrived_by(&self, time: u64) -> Units {
        let behind = self.points.partition_point(|point| point.arrival <= time);
        let Some(before) = behind.checked_sub(1).map(|nth| self.points[nth]) else {
            return Units::default();
        };
        let Some(next) = self.points.get(behind) else {
            return before.units;
        };
        let arrivals = (before.arrival, next.arrival);
        before.units.zip(next.units, |before, next| {
            interpolate(time, arrivals, (before, next))
        })
    }

    /// When the last request arrived of those that cost so many units.
    pub(crate) fn arrival_of(&self, units: Units) -> u64 {
        let unit = units.total();
        let is_before = |point: &Point| point.units.total() < unit;
        let next = self.points.partition_point(is_before);
        let next = next.min(self.points.len() - 1);
        let arrival = self.points[next].arrival;
        let Some(before) = next.checked_sub(1).map(|nth| self.points[nth]) else {
            return arrival;
        };
        let units = (before.units.total(), self.points[next].units.total());
        interpolate(unit, units, (before.arrival, arrival))
    }

    /// The demand without its first requests, of so many units.
    pub(crate) fn without(&self, units: Units) -> Self {
        let is_behind = |point: &Point, units: Units| point.units.total() > units.total();
        let points = &self.points;
        let next = points.partition_point(|point| !is_behind(point, units));
        let Some(point) = points.get(next) else {
            return Self::default();
        };
        let mut rest = Self {
            points: SmallVec::new(),
            cost: self.cost,
        };
        let is_described = units.is_zero() || (self.cost.is_zero() && next < POINTS);
        if !is_described {
            // Where the cost of the next request is unknown, the estimate is early with 1.
            let first = match self.cost.is_zero() {
                true => (point.units - units).at_most_one(),
                false => self.cost.into(),
            };
            let arrival = self.arrival_of(units + first);
            rest.points.push(Point {
                arrival,
                units: first,
            });
        }
        let first = rest.units();
        let left = points.iter();
        let left = left.filter(|point| is_behind(point, units + first));
        rest.points.extend(left.map(|point| Point {
            units: point.units - units,
            ..*point
        }));
        rest
    }
}

/// The value at `at` on the line that maps the range `from` to the range `to`.
fn interpolate(at: u64, from: (u64, u64), to: (u64, u64)) -> u64 {
    let span = (to.1 - to.0) as f64 * (at - from.0) as f64;
    to.0 + (span / (from.1 - from.0) as f64) as u64
}

/// The latest call of a process for a key: what it announced, and what it was granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) process: u64,
    /// The share of its requests.
    pub(crate) flow: u64,
    /// The number of the call.
    pub(crate) number: u64,
    /// The process is overdue if its next call arrives later.
    pub(crate) deadline: u64,
    pub(crate) demand: Demand,
    /// The departures granted by that call. If the answer was lost, the next call takes them back.
    pub(crate) granted: SmallVec<[super::Recorded; 1]>,
}

/// A process is overdue if its call is late by this, or by two round trips.
pub(super) const LATE: u64 = 20_000;

/// So long behind the deadline of a process ahead, the next one calls.
pub(super) const WATCH_DELAY: u64 = 60_000;

/// The time after which the demand of an overdue process no longer counts.
pub(super) const OVERDUE: u64 = 250_000;

/// The time after which the last call of a process is forgotten.
pub(super) const FORGOTTEN: u64 = 10_000_000;

impl Announcement {
    /// The deadline of a process whose next call is due then.
    pub(crate) fn deadline(due: u64, round_trip: u64) -> u64 {
        due + LATE.max(2 * round_trip)
    }

    /// The announcement of the first requests alone, which cost so much.
    pub(crate) fn only(&self, units: Units) -> Self {
        let mut this = self.clone();
        this.demand.cost = self.demand.first_cost().as_costs();
        for point in &mut this.demand.points {
            point.units = point.units.zip(units, u64::min);
        }
        this
    }

    /// Returns true if its demand counts against capacity that is due later.
    pub(crate) fn counts(&self, now: u64) -> bool {
        !self.demand.is_empty() && now <= self.deadline + OVERDUE
    }

    /// When the process behind it calls next, if this one does not call: a few times behind its deadline, and once its
    /// demand no longer counts.
    pub(super) fn watch_at(&self, now: u64) -> u64 {
        let first = self.deadline + WATCH_DELAY;
        if now < first {
            first
        } else {
            (now + OVERDUE / 5).min(self.deadline + OVERDUE + 1)
        }
    }

    pub(crate) fn expires(&self) -> u64 {
        self.deadline + FORGOTTEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_cost_nothing_in_the_new_units_are_dropped() {
        let costs = [(1, [2, 1]), (2, [3, 0]), (3, [0, 3])];
        let costs = costs.map(|(at, [one, other])| (at, Costs([one, other, 0, 0])));
        let mut demand = Demand::new(costs.into_iter());
        demand.renumber(&[None, Some(1)]);
        let left = demand.points.iter().map(|it| (it.arrival, it.units.0[1]));
        assert_eq!(left.collect::<Vec<_>>(), [(1, 1), (3, 4)]);
        demand.renumber(&[Some(0)]);
        assert_eq!(demand, Demand::default());
    }
}
