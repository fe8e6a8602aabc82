use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::cost::Cost;
use crate::quota::REQUESTS;

/// The advice of a response: a pause, allowances, the actual cost of its request, or nothing.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::feedback::Advice;
///
/// let (pause, reset) = (Duration::from_secs(20), Duration::from_secs(40));
/// let advice = Advice::pause(pause).and(Advice::remaining(15, reset));
/// assert_eq!(advice.wait(), Some(pause));
/// assert_eq!(advice.allowances().next(), Some(("requests", 15, reset)));
/// ```
///
/// All times count from the moment at which the response was read. The default is [`none`](Advice::none).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "advice does nothing until it is applied"]
pub struct Advice {
    wait: Option<Duration>,
    /// By their units: how much remains, and for how long that counts.
    allowances: BTreeMap<Cow<'static, str>, (u32, Duration)>,
    /// A response refuses its request, as nothing remains of a unit.
    pub(super) is_refused: bool,
    cost: Option<Cost>,
}

impl Advice {
    /// Nothing: the response does not say anything of limits.
    pub fn none() -> Self {
        Self::default()
    }

    /// The request has actually cost this much: what was charged in the units that it names is
    /// [corrected](crate::Charge::settle_to).
    pub fn settle(cost: impl Into<Cost>) -> Self {
        Self {
            cost: Some(cost.into()),
            ..Self::default()
        }
    }

    /// Nothing may depart for so long.
    ///
    /// A pause of zero is [`none`](Self::none).
    pub fn pause(time: Duration) -> Self {
        Self {
            wait: (!time.is_zero()).then_some(time),
            ..Self::default()
        }
    }

    /// No more than `count` requests may depart within this time.
    ///
    /// A time of zero is [`none`](Self::none). For more, see [`remaining_of`](Self::remaining_of).
    pub fn remaining(count: u32, within: Duration) -> Self {
        Self::remaining_of(REQUESTS, count, within)
    }

    /// No more than `count` of this unit may be spent within this time.
    ///
    /// If that is nothing, it holds back the requests that cost something in this unit, unless the limiter holds them back by
    /// itself: nothing remains here either, or did when the request departed, and the time is no longer than the shortest window (for
    /// spacing, the gap; for GCRA, the time that refills the burst) and a second, to which providers round up. For a response that
    /// refuses its request, use [`pause`](Self::pause). If no quota counts the unit, it is a pause. A time of zero is
    /// [`none`](Self::none).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::feedback::Advice;
    ///
    /// let reset = Duration::from_secs(6);
    /// let advice = Advice::remaining_of("tokens", 0, reset).and(Advice::remaining(15, reset));
    /// assert_eq!(advice.wait(), None);
    /// assert!(advice.allowances().eq([("requests", 15, reset), ("tokens", 0, reset)]));
    /// ```
    pub fn remaining_of(unit: impl Into<Cow<'static, str>>, count: u32, within: Duration) -> Self {
        let unit = unit.into();
        if within.is_zero() {
            return Self::none();
        }
        Self {
            allowances: BTreeMap::from([(unit, (count, within))]),
            ..Self::default()
        }
    }

    /// What is stricter of the two: the longer pause, and of each unit the less that remains.
    ///
    /// Where as much remains by both, it is for the longer of the two times. If both have a cost, the other one's counts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::feedback::Advice;
    ///
    /// let minute = Advice::remaining(5, Duration::from_secs(60));
    /// let day = Advice::remaining(800, Duration::from_secs(86_400));
    /// assert_eq!(day.and(minute.clone()), minute);
    /// ```
    pub fn and(mut self, other: Self) -> Self {
        self.wait = self.wait.max(other.wait);
        let strictness = |&(count, within): &(u32, Duration)| (count, Reverse(within));
        for (unit, other) in other.allowances {
            let allowance = self.allowances.entry(unit).or_insert(other);
            *allowance = std::cmp::min_by_key(*allowance, other, strictness);
        }
        self.is_refused |= other.is_refused;
        self.cost = other.cost.or(self.cost);
        self
    }

    /// The response refuses its request: what it says counts, whatever the quotas say.
    pub(super) fn refused(mut self) -> Self {
        self.is_refused = self.allowances.values().any(|(count, _)| *count == 0);
        self
    }

    /// For how long nothing may depart, if there is a pause; never zero.
    pub fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// The actual cost of the request, if the response states it.
    pub fn cost(&self) -> Option<&Cost> {
        self.cost.as_ref()
    }

    /// The allowances, by unit: how much of it may be spent, at most, and within which time, which is never zero. Requests are
    /// the unit `requests`.
    pub fn allowances(&self) -> impl Iterator<Item = (&str, u32, Duration)> {
        let allowances = self.allowances.iter();
        allowances.map(|(unit, &(count, within))| (&**unit, count, within))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn advice() -> impl Strategy<Value = Advice> {
        let allowance = ("[ab]|requests", 0_u32..4, 0_u64..4);
        (0_u64..4, allowance.clone(), allowance).prop_map(|(pause, one, another)| {
            let remaining = |(unit, count, within): (String, u32, u64)| {
                Advice::remaining_of(unit, count, Duration::from_secs(within))
            };
            let pause = Advice::pause(Duration::from_secs(pause));
            pause.and(remaining(one)).and(remaining(another))
        })
    }

    proptest! {
        #[test]
        fn the_order_of_joining_does_not_matter(a in advice(), b in advice(), c in advice()) {
            let and = |one: &Advice, other: &Advice| one.clone().and(other.clone());
            prop_assert_eq!(and(&a, &b), and(&b, &a));
            prop_assert_eq!(and(&and(&a, &b), &c), and(&a, &and(&b, &c)));
            prop_assert_eq!(and(&a, &a), a.clone());
            prop_assert!(a.allowances().all(|(_, _, within)| !within.is_zero()));
            prop_assert_eq!(and(&a, &Advice::none()), a);
        }
    }
}
