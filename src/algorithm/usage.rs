//! The quota of a counter, and the units used of it.

use std::time::Duration;

use super::counter::{Counter, Size, Tally};
use crate::quota::{Algorithm, Quota, WindowStart};

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

impl Counter {
    /// A quota that is counted by these numbers.
    pub(crate) fn quota(&self) -> Quota {
        let (unit, Size { units, span }) = (self.unit, self.size);
        let new = |limit, window| Quota::new(limit, Duration::from_micros(window)).unit(unit);
        match &self.tally {
            Tally::Window(_) => new(units, span),
            Tally::Gcra(it) if it.spaced => {
                new(units, roundest_window(units, span)).algorithm(Algorithm::Spacing)
            }
            Tally::Gcra(_) => {
                let (limit, window) = per_unit(span);
                new(limit, window).algorithm(Algorithm::Gcra { burst: units })
            }
            Tally::Fixed(it) => {
                let start = match it.aligned {
                    true => WindowStart::Clock,
                    false => WindowStart::FirstRequest,
                };
                new(units, span).algorithm(Algorithm::FixedWindow { start })
            }
            Tally::Concurrent(_) => Quota::concurrent(units).lease(Duration::from_micros(span)),
        }
    }

    /// The units that count at `now`, and the most that may count. With GCRA, the guard and the buffer count as well.
    pub(crate) fn used(&self, now: u64) -> (u32, u32) {
        let Size { units, span } = self.size;
        let (used, most) = match &self.tally {
            Tally::Window(it) => {
                let counts = it.log.iter().filter(|entry| entry.recorded + span > now);
                (counts.map(|entry| u64::from(entry.units)).sum(), units)
            }
            Tally::Gcra(it) => {
                let used = it.due.saturating_sub(now).div_ceil(span);
                (used, if it.spaced { 1 } else { units })
            }
            Tally::Fixed(it) if now < it.end => (it.count.into(), units),
            Tally::Fixed(_) => (0, units),
            Tally::Concurrent(it) => (it.held(), units),
        };
        // A quota that was lowered may be exceeded.
        (u32::try_from(used).unwrap_or(u32::MAX).min(most), most)
    }
}

/// The limit and the window of one unit per interval, with a window of one unit of time if there is one.
fn per_unit(interval: u64) -> (u32, u64) {
    let rates = [SECOND, MINUTE, HOUR, DAY].map(|unit| (unit.div_ceil(interval), unit));
    let fits = |&(limit, unit): &(u64, u64)| unit.div_ceil(limit) == interval;
    match rates.into_iter().find(fits) {
        Some((limit, unit)) => (u32::try_from(limit).unwrap_or(u32::MAX), unit),
        None => (1, interval),
    }
}

/// The roundest of the windows that have this interval, which is rounded up to whole microseconds.
fn roundest_window(limit: u32, interval: u64) -> u64 {
    let longest = interval.saturating_mul(limit.into());
    let fits = |window: &u64| *window > 0 && window.div_ceil(limit.into()) == interval;
    let rounded = [DAY, HOUR, MINUTE, SECOND, MILLISECOND].map(|unit| longest - longest % unit);
    rounded.into_iter().find(fits).unwrap_or(longest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::Window;

    proptest! {
        #[test]
        fn every_counter_shows_a_quota_with_its_numbers(
            limit in 1..2_000_000_u32,
            (bits, shift) in (any::<u64>(), 18..60_u32),
            unit in prop::sample::select(vec![1, MILLISECOND, SECOND, MINUTE, HOUR]),
            burst in 1..100_000_u32,
            index in 0..7_usize,
        ) {
            let window = u64::clamp(bits >> shift, 1, 1 << 40) / unit * unit + unit;
            prop_assume!(window / u64::from(limit) > 0);
            let first = WindowStart::FirstRequest;
            let algorithm = [
                Algorithm::SlidingLog,
                Algorithm::SlidingBuckets { buckets: 7 },
                Algorithm::Spacing,
                Algorithm::LeakyBucket { capacity: 5 },
                Algorithm::Gcra { burst },
                Algorithm::FixedWindow { start: WindowStart::Clock },
                Algorithm::FixedWindow { start: first },
            ][index];
            let quota = Quota::new(limit, Duration::from_micros(window)).algorithm(algorithm);
            let mut counter = Counter::new(&quota);
            if let Tally::Window(it) = &mut counter.tally {
                // Values do not hold the rounding, which calls bring along.
                *it = Window::new(counter.size);
            }
            prop_assert_eq!(Counter::new(&counter.quota()), counter);
        }
    }
}
