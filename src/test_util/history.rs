//! [`History`] says whether more than N requests ever fell into one window.
//!
//! The judge must not share a fault with what it judges, so nothing here knows of quotas, slots or
//! stores. A history is a sorted list of times, and the answer comes from moving two positions
//! along it.

mod report;

use std::time::Duration;

/// Departures or arrivals, each the time since one origin that all of them share.
///
/// A limiter's promise is about *any* window, so counting per second of the clock proves little:
/// ten at 0.9 s and ten at 1.1 s look like ten in each second, and are twenty within 200 ms.
/// `History` looks at every window there is.
///
/// A window is half-open: `[start, start + window)`. Two events exactly `window` apart are never in
/// one window.
///
/// Events may come in any order. Each weighs 1 unless pushed with
/// [`push_weighted`](Self::push_weighted). Times are whole nanoseconds and are never rounded.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::test_util::history::History;
///
/// let second = Duration::from_secs(1);
/// let departures: History =
///     [0, 900, 1_000, 1_100].map(Duration::from_millis).into_iter().collect();
///
/// assert_eq!(departures.len(), 4);
/// departures.assert_at_most(3, second); // those at 900, 1,000 and 1,100 ms
/// assert_eq!(departures.most_in_any(Duration::from_millis(100)), 1);
/// assert_eq!(departures.smallest_gap(), Some(Duration::from_millis(100)));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Sorted by time; those at the same time stand in the order in which they came.
    events: Vec<Event>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event {
    at: Duration,
    weight: u64,
}

/// The fullest window of a [`History`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busiest {
    /// Where the window starts, which is the time of its first event.
    pub start: Duration,
    /// The time of its last event, so what lies in the window spans `last - start`.
    pub last: Duration,
    /// How many events it holds.
    pub events: usize,
    /// What they weigh together; the same as `events` unless some were pushed with a weight.
    pub weight: u64,
}

impl History {
    /// A history without events.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an event that weighs 1.
    pub fn push(&mut self, at: Duration) {
        self.push_weighted(at, 1);
    }

    /// Adds an event that weighs `weight`, such as a request with a cost.
    pub fn push_weighted(&mut self, at: Duration, weight: u64) {
        let place = self.events.partition_point(|event| event.at <= at);
        self.events.insert(place, Event { at, weight });
    }

    /// How many events there are, whatever they weigh.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// What all events weigh together.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.events.iter().map(|event| event.weight).sum()
    }

    /// The times of all events, sorted.
    pub fn times(&self) -> impl ExactSizeIterator<Item = Duration> + '_ {
        self.events.iter().map(|event| event.at)
    }

    /// From the first event to the last; `None` without events.
    #[must_use]
    pub fn span(&self) -> Option<Duration> {
        Some(self.events.last()?.at - self.events.first()?.at)
    }

    /// Weight per second from the first event to the last; `None` while they span no time.
    ///
    /// The first event only starts the clock, so events spaced evenly by W/N have a rate of exactly
    /// N/W.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let span = self.span().filter(|span| !span.is_zero())?;
        let weight = self.weight() - self.events.first()?.weight;
        Some(weight as f64 / span.as_secs_f64())
    }

    /// The shortest time between two events; `None` when there are fewer than two.
    #[must_use]
    pub fn smallest_gap(&self) -> Option<Duration> {
        self.events
            .windows(2)
            .map(|pair| pair[1].at - pair[0].at)
            .min()
    }

    /// The most, by weight, that any half-open interval `[start, start + window)` holds.
    #[must_use]
    pub fn most_in_any(&self, window: Duration) -> u64 {
        self.busiest(window).map_or(0, |busiest| busiest.weight)
    }

    /// The interval that holds the most, the earliest of them if several do; `None` without events
    /// or with a zero window, which holds nothing.
    #[must_use]
    pub fn busiest(&self, window: Duration) -> Option<Busiest> {
        if window.is_zero() {
            return None;
        }
        // Any interval can be moved right until it starts at an event without losing one, so only
        // these are tried.
        let mut fullest: Option<Busiest> = None;
        let (mut end, mut weight) = (0, 0);
        for (begin, first) in self.events.iter().enumerate() {
            while let Some(next) = self
                .events
                .get(end)
                .filter(|next| next.at - first.at < window)
            {
                weight += next.weight;
                end += 1;
            }
            if fullest.is_none_or(|fullest| weight > fullest.weight) {
                let last = self.events[end - 1].at;
                fullest = Some(Busiest {
                    start: first.at,
                    last,
                    events: end - begin,
                    weight,
                });
            }
            weight -= first.weight;
        }
        fullest
    }

    /// The most, by weight, in any of the windows `[0, window)`, `[window, 2 * window)` and so on.
    ///
    /// This is the looser promise of a fixed window that is aligned to the clock; events must be
    /// measured from the origin to which the windows are aligned.
    #[must_use]
    pub fn most_in_aligned(&self, window: Duration) -> u64 {
        if window.is_zero() {
            return 0;
        }
        let number = |event: &Event| event.at.as_nanos() / window.as_nanos();
        self.events
            .chunk_by(|a, b| number(a) == number(b))
            .map(|same| same.iter().map(|event| event.weight).sum())
            .max()
            .unwrap_or(0)
    }

    /// Panics if any half-open interval of length `window` holds more than `n`, by weight.
    ///
    /// A history without events passes, so assert on [`len`](Self::len) too.
    ///
    /// # Panics
    ///
    /// When some interval holds more, with the fullest one and the times in and around it; or when
    /// `window` is zero, since such an assertion would always hold.
    #[track_caller]
    pub fn assert_at_most(&self, n: u64, window: Duration) {
        assert!(
            !window.is_zero(),
            "a window of zero holds nothing: nothing to assert"
        );
        if let Some(busiest) = self.busiest(window).filter(|busiest| busiest.weight > n) {
            panic!("{}", report::excess(self, n, window, busiest));
        }
    }
}

impl FromIterator<Duration> for History {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        times.into_iter().map(|at| (at, 1)).collect()
    }
}

/// Pairs of time and weight.
impl FromIterator<(Duration, u64)> for History {
    fn from_iter<I: IntoIterator<Item = (Duration, u64)>>(weighted: I) -> Self {
        let mut history = Self::new();
        history.extend(weighted);
        history
    }
}

impl Extend<Duration> for History {
    fn extend<I: IntoIterator<Item = Duration>>(&mut self, times: I) {
        self.extend(times.into_iter().map(|at| (at, 1)));
    }
}

impl Extend<(Duration, u64)> for History {
    fn extend<I: IntoIterator<Item = (Duration, u64)>>(&mut self, weighted: I) {
        self.events.extend(
            weighted
                .into_iter()
                .map(|(at, weight)| Event { at, weight }),
        );
        self.events.sort_by_key(|event| event.at);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const NS: fn(u64) -> Duration = Duration::from_nanos;

    fn at_ms<const LEN: usize>(times: [u64; LEN]) -> History {
        times.map(MS).into_iter().collect()
    }

    #[test]
    fn two_events_exactly_a_window_apart_are_not_in_one_window() {
        assert_eq!(at_ms([5, 1_005]).most_in_any(MS(1_000)), 1);
        assert_eq!(at_ms([5, 1_005]).most_in_any(MS(1_000) + NS(1)), 2);
    }

    #[test]
    fn a_window_is_seen_wherever_it_starts() {
        let history = at_ms([1_100, 900, 0, 1_200, 950]);
        let busiest = history.busiest(MS(1_000)).unwrap();
        assert_eq!((busiest.start, busiest.last), (MS(900), MS(1_200)));
        assert_eq!((busiest.events, busiest.weight), (4, 4));
        assert_eq!(history.most_in_aligned(MS(1_000)), 3);
        assert_eq!(
            at_ms([900, 950, 1_000, 1_050]).most_in_aligned(MS(1_000)),
            2
        );
    }

    #[test]
    fn events_at_one_time_all_count() {
        assert_eq!(at_ms([7, 7, 7]).most_in_any(NS(1)), 3);
        assert_eq!(at_ms([7, 7, 7]).smallest_gap(), Some(Duration::ZERO));
        assert_eq!(at_ms([7, 7, 7]).rate(), None);
    }

    #[test]
    fn of_equally_full_windows_the_first_is_named() {
        assert_eq!(
            at_ms([0, 10, 500, 510]).busiest(MS(100)).unwrap().start,
            MS(0)
        );
    }

    #[test]
    fn a_weight_counts_as_so_many() {
        let history: History = [(MS(0), 5), (MS(10), 1), (MS(1_000), 5)]
            .into_iter()
            .collect();
        assert_eq!(history.most_in_any(MS(1_000)), 6);
        assert_eq!((history.len(), history.weight()), (3, 11));
        assert_eq!(history.rate(), Some(6.0));
    }

    #[test]
    fn without_events_there_is_nothing_to_report() {
        let none = History::new();
        none.assert_at_most(0, MS(1));
        assert_eq!(
            (none.most_in_any(MS(1)), none.most_in_aligned(MS(1))),
            (0, 0)
        );
        assert_eq!(
            (
                none.busiest(MS(1)),
                none.span(),
                none.smallest_gap(),
                none.rate()
            ),
            (None, None, None, None)
        );
        assert!(none.is_empty());
    }

    #[test]
    fn a_window_up_to_the_end_of_time_does_not_overflow() {
        let history: History = [Duration::ZERO, Duration::MAX].into_iter().collect();
        assert_eq!(history.most_in_any(Duration::MAX), 1);
    }

    #[test]
    #[should_panic(expected = "nothing to assert")]
    fn a_zero_window_is_refused_by_the_assertion() {
        at_ms([1]).assert_at_most(1, Duration::ZERO);
    }

    proptest! {
        /// The model asks every event how much lies in the window that starts at it, and knows no
        /// order.
        #[test]
        fn agrees_with_counting_every_window_by_hand(
            events in prop::collection::vec((0_u64..60, 1_u64..4), 0..40),
            window in 1_u64..80,
        ) {
            let inside = |start: u64| {
                events.iter().filter(move |(at, _)| (start..start + window).contains(at))
            };
            let weight = |start: u64| inside(start).map(|(_, weight)| weight).sum::<u64>();
            let most = events.iter().map(|(start, _)| weight(*start)).max().unwrap_or(0);
            // Starts that are no event, too: the shortcut above is itself part of what is checked.
            let most_anywhere = (0..60).map(weight).max().unwrap_or(0);
            let gaps = (0..events.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
            let smallest = gaps.map(|(i, j)| events[i].0.abs_diff(events[j].0)).min();

            let collected: History = events.iter().map(|(at, weight)| (NS(*at), *weight)).collect();
            let mut pushed = History::new();
            events.iter().for_each(|(at, weight)| pushed.push_weighted(NS(*at), *weight));

            prop_assert_eq!(&collected, &pushed);
            prop_assert_eq!(collected.most_in_any(NS(window)), most);
            prop_assert_eq!(most, most_anywhere);
            prop_assert_eq!(collected.smallest_gap(), smallest.map(NS));
            if let Some(busiest) = collected.busiest(NS(window)) {
                let start = u64::try_from(busiest.start.as_nanos()).unwrap();
                prop_assert_eq!(weight(start), busiest.weight);
                prop_assert_eq!(inside(start).count(), busiest.events);
                prop_assert_eq!(inside(start).map(|(at, _)| NS(*at)).max(), Some(busiest.last));
            }
            let aligned = (0..60).step_by(window as usize).map(weight).max().unwrap_or(0);
            prop_assert_eq!(collected.most_in_aligned(NS(window)), aligned);
        }
    }
}
