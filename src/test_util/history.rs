//! [`History`] says whether more than N requests ever fell into one window.
//!
//! Collect when requests departed or arrived, and assert on it.
//!
//! The judge must not share a fault with what it judges, so nothing here knows of quotas, slots or
//! stores. A history is a sorted list of times, and the answer comes from moving two positions
//! along it.

mod bounds;
mod report;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

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
/// ```
///
/// # Times of a test
///
/// It is collected from durations, or from instants, tokio's too; the first instant is the origin. If time is paused, take
/// tokio's instants, and the history is exact. A server on a socket takes the host's when a request arrives. Leave a
/// [buffer](crate::LimiterBuilder::buffer) for the way there:
///
/// ```no_run
/// use std::sync::{Arc, Mutex};
/// use std::time::{Duration, Instant};
/// use tower_throttle::test_util::history::History;
/// use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};
///
/// # async fn example() {
/// let arrivals = Arc::new(Mutex::new(Vec::new()));
/// let notes = arrivals.clone();
/// let server = MockServer::start().await;
/// let answer = move |_: &wiremock::Request| {
///     notes.lock().unwrap().push(Instant::now());
///     ResponseTemplate::new(200)
/// };
/// Mock::given(any()).respond_with(answer).mount(&server).await;
///
/// // …send 30 requests…
///
/// let history: History = arrivals.lock().unwrap().drain(..).collect();
/// assert_eq!(history.len(), 30);
/// history.assert_at_most(10, Duration::from_secs(1));
/// # }
/// ```
///
/// An assertion that fails shows the fullest window, with the times in it and around it:
///
/// ```text
/// 3 in [900ms, 1.9s), where any 1s may hold at most 2 (> marks them; time, since the start, weight if not 1):
///     0ns  -900ms
///   > 900ms  +0ns
///   > 1s  +100ms
///   > 1.1s  +200ms
///     1.9s  +1s
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

impl History {
    /// A history without events.
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
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// What all events weigh together.
    pub fn weight(&self) -> u64 {
        self.events.iter().map(|event| event.weight).sum()
    }

    /// The times of all events, sorted.
    pub fn times(&self) -> impl ExactSizeIterator<Item = Duration> + '_ {
        self.events.iter().map(|event| event.at)
    }

    /// From the first event to the last; `None` without events.
    pub fn span(&self) -> Option<Duration> {
        Some(self.events.last()?.at - self.events.first()?.at)
    }

    /// The most, by weight, that any half-open interval `[start, start + window)` holds.
    pub fn most_in_any(&self, window: Duration) -> u64 {
        self.fullest(window).1
    }

    /// The places of the events in the interval that holds the most, the earliest of them if several do, and their weight.
    fn fullest(&self, window: Duration) -> (Range<usize>, u64) {
        let (mut fullest, mut most) = (0..0, 0);
        if window.is_zero() {
            return (fullest, most);
        }
        // Any interval can be moved right until it starts at an event without losing one, so only
        // these are tried.
        let (mut end, mut weight) = (0, 0);
        for (begin, first) in self.events.iter().enumerate() {
            let is_inside = |next: &&Event| next.at - first.at < window;
            while let Some(next) = self.events.get(end).filter(is_inside) {
                weight += next.weight;
                end += 1;
            }
            if weight > most {
                (fullest, most) = (begin..end, weight);
            }
            weight -= first.weight;
        }
        (fullest, most)
    }

    /// The most, by weight, in any of the windows `[0, window)`, `[window, 2 * window)` and so on.
    ///
    /// This is the looser promise of a fixed window that is aligned to the clock; events must be
    /// measured from the origin to which the windows are aligned, such as the time since 1970.
    pub fn most_in_aligned(&self, window: Duration) -> u64 {
        if window.is_zero() {
            return 0;
        }
        let number = |event: &Event| event.at.as_nanos() / window.as_nanos();
        let windows = self.events.chunk_by(|a, b| number(a) == number(b));
        let weights = windows.map(|same| same.iter().map(|event| event.weight).sum());
        weights.max().unwrap_or(0)
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
        let (fullest, most) = self.fullest(window);
        if most > n {
            panic!("{}", report::excess(self, n, window, fullest));
        }
    }
}

impl FromIterator<Duration> for History {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        times.into_iter().map(|at| (at, 1)).collect()
    }
}

/// Times that were read from the host's clock, counted from the first of them.
impl FromIterator<std::time::Instant> for History {
    fn from_iter<I: IntoIterator<Item = std::time::Instant>>(times: I) -> Self {
        times.into_iter().map(Instant::from_std).collect()
    }
}

/// Times that were read from tokio's clock, which may be paused, counted from the first of them.
impl FromIterator<Instant> for History {
    fn from_iter<I: IntoIterator<Item = Instant>>(times: I) -> Self {
        let times: Vec<_> = times.into_iter().collect();
        let first = times.iter().min().copied();
        let since_first = |at| first.map_or(Duration::ZERO, |first| at - first);
        times.into_iter().map(since_first).collect()
    }
}

/// Pairs of time and weight.
impl FromIterator<(Duration, u64)> for History {
    fn from_iter<I: IntoIterator<Item = (Duration, u64)>>(weighted: I) -> Self {
        let event = |(at, weight)| Event { at, weight };
        let mut events: Vec<_> = weighted.into_iter().map(event).collect();
        events.sort_by_key(|event| event.at);
        Self { events }
    }
}
