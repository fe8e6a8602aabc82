//! The promises of the other algorithms: rates with a burst, spacing, and windows that begin with a request.

use std::time::Duration;

use super::{Event, History};
use crate::quota::{Algorithm, Quota, WindowStart};

impl History {
    /// Why these departures break the promise of a rate, if they do. A concurrency limit is no rate.
    #[doc(hidden)]
    pub fn fault(&self, quota: &Quota) -> Option<String> {
        let (limit, window) = (u64::from(quota.limit()), quota.window());
        let interval = window / quota.limit();
        match quota.counted_by() {
            Algorithm::SlidingLog | Algorithm::SlidingBuckets { .. } => {
                let most = self.most_in_any(window);
                (most > limit).then(|| format!("{most} in a window"))
            }
            Algorithm::Spacing | Algorithm::LeakyBucket { .. } => self
                .too_close(interval)
                .map(|at| format!("a departure at {at:?} is too close to the one before")),
            Algorithm::Gcra { burst } => {
                let most = self.burst(interval);
                (most > burst.into()).then(|| format!("a burst of {most}"))
            }
            Algorithm::FixedWindow {
                start: WindowStart::Clock,
            } => {
                let most = self.most_in_aligned(window);
                (most > limit).then(|| format!("{most} in a window of the clock"))
            }
            Algorithm::FixedWindow { .. } => {
                let fits = self.fits_windows(limit, window);
                (!fits).then(|| "no windows hold all departures".to_owned())
            }
            Algorithm::Concurrent { .. } => None,
        }
    }

    /// The smallest burst B such that every span s holds at most B + s / `interval`, by weight.
    ///
    /// This is the promise of GCRA. A zero interval promises nothing, and needs no burst.
    pub fn burst(&self, interval: Duration) -> u64 {
        let interval = interval.as_nanos();
        if interval == 0 {
            return 0;
        }
        // A bucket that drains steadily never holds more than the burst.
        let (mut level, mut before, mut most) = (0_u128, 0, 0);
        for event in &self.events {
            let at = event.at.as_nanos();
            level = level.saturating_sub(at - before) + u128::from(event.weight) * interval;
            (before, most) = (at, most.max(level));
        }
        u64::try_from(most.div_ceil(interval)).unwrap_or(u64::MAX)
    }

    /// The first event that follows another one by less than `interval` for each unit of that one's weight.
    ///
    /// This is the promise of spacing and of a leaky bucket.
    pub fn too_close(&self, interval: Duration) -> Option<Duration> {
        let is_close = |pair: &&[Event]| {
            let gap = (pair[1].at - pair[0].at).as_nanos();
            gap < u128::from(pair[0].weight) * interval.as_nanos()
        };
        let pair = self.events.windows(2).find(is_close)?;
        Some(pair[1].at)
    }

    /// Returns true if some windows of this length that do not overlap hold all events, each at most `n` by weight.
    ///
    /// This is the promise of fixed windows that begin with a request. The request that began a window may have been
    /// cancelled, so a window may begin earlier than its first event.
    pub fn fits_windows(&self, n: u64, window: Duration) -> bool {
        // For each event: the earliest end of a window that begins with it, if windows hold the events before it and no others.
        let mut ends = vec![Some(Duration::ZERO)];
        for (last, event) in self.events.iter().enumerate() {
            let next = self.events.get(last + 1);
            let next = next.map_or(Duration::MAX, |next| next.at);
            let mut weight = 0;
            let firsts = (0..=last).rev().take_while(|&first| {
                weight += self.events[first].weight;
                weight <= n
            });
            let possible = firsts.filter_map(|first| {
                let end = ends[first]?.max(event.at.saturating_add(Duration::from_nanos(1)));
                let latest = next.min(self.events[first].at.saturating_add(window));
                (end <= latest).then_some(end)
            });
            let earliest = possible.min();
            ends.push(earliest.map(|end| end.saturating_add(window)));
        }
        ends[self.len()].is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }

    fn at(times: &[u64]) -> History {
        times.iter().copied().map(ns).collect()
    }

    fn weighted(events: [(u64, u64); 2]) -> History {
        let events = events.map(|(at, weight)| (ns(at), weight));
        events.into_iter().collect()
    }

    #[test]
    fn a_burst_is_counted_beyond_the_rate() {
        for (times, expected) in [
            (&[][..], 0),
            (&[0, 10, 20], 1),
            (&[0, 9, 20], 2),
            (&[5, 5, 5, 15, 100], 3),
        ] {
            assert_eq!(at(times).burst(ns(10)), expected, "{times:?}");
        }
        assert_eq!(weighted([(0, 4), (20, 2)]).burst(ns(10)), 4);
    }

    #[test]
    fn spacing_leaves_an_interval_for_each_unit() {
        assert_eq!(at(&[0, 10, 25]).too_close(ns(10)), None);
        assert_eq!(at(&[0, 10, 19]).too_close(ns(10)), Some(ns(19)));
        assert_eq!(weighted([(0, 2), (19, 1)]).too_close(ns(10)), Some(ns(19)));
        assert_eq!(weighted([(0, 2), (20, 1)]).too_close(ns(10)), None);
    }

    #[test]
    fn windows_are_found_wherever_they_begin() {
        for (times, expected) in [
            (&[][..], true),
            (&[0, 1, 10, 11], true),
            // One window begins at 0 and one at 10.
            (&[5, 10, 11], true),
            (&[0, 1, 2, 3], true),
            (&[0, 0, 0], false),
            (&[0, 1, 2, 3, 4], false),
            (&[0, 0, 1, 1, 11], true),
            (&[0, 0, 1, 1, 2], false),
            (&[0, 1, 10, 11, 12], true),
            (&[0, 1, 11, 12, 21, 22], true),
        ] {
            assert_eq!(at(times).fits_windows(2, ns(10)), expected, "{times:?}");
        }
    }
}
