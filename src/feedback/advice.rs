use std::cmp::Reverse;
use std::time::Duration;

/// What a response advises: a pause, an allowance, both or nothing.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::feedback::Advice;
///
/// let (pause, reset) = (Duration::from_secs(20), Duration::from_secs(40));
/// let advice = Advice::pause(pause).and(Advice::remaining(15, reset));
/// assert_eq!(advice.wait(), Some(pause));
/// assert_eq!(advice.allowance(), Some((15, reset)));
/// ```
///
/// All times count from the moment at which the response was read. The default is [`none`](Advice::none).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "advice does nothing until it is applied"]
pub struct Advice {
    wait: Option<Duration>,
    allowance: Option<(u32, Duration)>,
}

impl Advice {
    /// Nothing: the response does not say anything of limits.
    pub fn none() -> Self {
        Self::default()
    }

    /// Nothing may depart for so long.
    ///
    /// A pause of zero is [`none`](Self::none).
    pub fn pause(time: Duration) -> Self {
        Self {
            wait: (!time.is_zero()).then_some(time),
            allowance: None,
        }
    }

    /// No more than `count` requests may depart within this time.
    ///
    /// If that is none, it is a [`pause`](Self::pause); a time of zero is [`none`](Self::none).
    pub fn remaining(count: u32, within: Duration) -> Self {
        if count == 0 {
            return Self::pause(within);
        }
        Self {
            wait: None,
            allowance: (!within.is_zero()).then_some((count, within)),
        }
    }

    /// What is stricter of the two: the longer pause, and the fewer that remain.
    ///
    /// Where as many remain by both, it is for the longer of the two times.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::feedback::Advice;
    ///
    /// let minute = Advice::remaining(5, Duration::from_secs(60));
    /// let day = Advice::remaining(800, Duration::from_secs(86_400));
    /// assert_eq!(day.and(minute), minute);
    /// ```
    pub fn and(self, other: Self) -> Self {
        let allowances = [self.allowance, other.allowance].into_iter().flatten();
        Self {
            wait: self.wait.max(other.wait),
            allowance: allowances.min_by_key(|&(count, within)| (count, Reverse(within))),
        }
    }

    /// For how long nothing may depart, if there is a pause; never zero.
    pub fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// How many requests may depart, at most, and within which time; neither is ever zero.
    pub fn allowance(&self) -> Option<(u32, Duration)> {
        self.allowance
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_stricter_of_two_is_kept() {
        let five = Advice::remaining(5, SECOND);
        assert_eq!((five.wait(), five.allowance()), (None, Some((5, SECOND))));
        assert_eq!(five.and(Advice::remaining(6, 9 * SECOND)), five);
        let longer = Advice::remaining(5, 2 * SECOND);
        assert_eq!(five.and(longer), longer);
        let pause = Advice::pause(3 * SECOND);
        assert_eq!(Advice::pause(SECOND).and(pause), pause);
        assert_eq!(Advice::remaining(0, 3 * SECOND), pause);
        let both = five.and(pause);
        assert_eq!(
            (both.wait(), both.allowance()),
            (pause.wait(), five.allowance())
        );
        assert_eq!(Advice::remaining(5, Duration::ZERO), Advice::none());
    }

    fn advice() -> impl Strategy<Value = Advice> {
        (0_u64..4, 0_u32..4, 0_u64..4).prop_map(|(pause, count, within)| {
            Advice::pause(Duration::from_secs(pause))
                .and(Advice::remaining(count, Duration::from_secs(within)))
        })
    }

    proptest! {
        #[test]
        fn the_order_of_joining_does_not_matter(a in advice(), b in advice(), c in advice()) {
            prop_assert_eq!(a.and(b), b.and(a));
            prop_assert_eq!(a.and(b).and(c), a.and(b.and(c)));
            prop_assert_eq!(a.and(a), a);
            prop_assert_eq!(a.and(Advice::none()), a);
        }
    }
}
