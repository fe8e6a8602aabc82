//! How much, per how long, counted how: [`Quota`] and [`Algorithm`].

mod check;
#[cfg(feature = "serde")]
mod serde;
mod text;

use std::time::Duration;

pub use self::text::ParseQuotaError;

/// The longest window, and the longest wait that a store hands out: ten years.
pub(crate) const HORIZON: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How many requests may depart per window, and how they are counted.
///
/// `Quota::per_second(10)` means ten per second: with the default algorithm, at most ten in *any*
/// second, not ten in each second of the clock. What cannot hold, such as a limit of 0, is refused
/// when the limiter is built.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Algorithm, Quota};
///
/// let polite = Quota::per_second(10);
/// assert_eq!(polite, Quota::new(10, Duration::from_secs(1)));
///
/// let bursty = Quota::per_minute(100).algorithm(Algorithm::Gcra { burst: 20 });
/// assert_eq!(bursty.largest_cost(), 20);
/// ```
///
/// # As text
///
/// A quota is parsed from, and shown as, `LIMIT/WINDOW [ALGORITHM [OPTION=VALUE]]`:
///
/// ```
/// # use std::time::Duration;
/// use tower_throttle::{Algorithm, Quota};
///
/// let quota: Quota = "100/m gcra burst=20".parse()?;
/// assert_eq!(quota, Quota::per_minute(100).algorithm(Algorithm::Gcra { burst: 20 }));
/// assert_eq!(quota.to_string(), "100/m gcra burst=20");
///
/// assert_eq!("600/1m30s".parse(), Ok(Quota::new(600, Duration::from_secs(90))));
/// assert_eq!("5000/60min".parse::<Quota>()?.to_string(), "5_000/h");
/// # Ok::<_, tower_throttle::ParseQuotaError>(())
/// ```
///
/// - A number is made of digits, with single `_` between them or without.
/// - The window is a unit alone, for one of it, or counts of units from large to small: `d`, `h`,
///   `m`, `s`, `ms` and `us`, or by longer names such as `min`, `sec` and `hours`.
/// - The algorithm is `sliding-log`, the default, `sliding-buckets buckets=COUNT`, `spacing`,
///   `leaky-bucket capacity=COUNT`, `gcra burst=COUNT`, or `fixed-window`, which begins windows by
///   `start=clock`, the default, or `start=first-request`.
/// - Words are separated by white space, of which there may be more around them. Upper case
///   is as good as lower case, except in `M`, which could be months.
///
/// Quotas that could not hold are no quotas here: parsing refuses, with [`ParseQuotaError`], what
/// building a limiter would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    limit: u32,
    window: Duration,
    algorithm: Algorithm,
}

/// How departures are counted against a [`Quota`] of N per W.
///
/// Which one to pick, and what each makes of the same burst: [`algorithms`](crate::algorithms).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// At most N in any window of length W, exactly; up to N may depart at once. The default.
    ///
    /// The store remembers the last N departures and those to come, some 8 bytes each.
    #[default]
    SlidingLog,
    /// At most N in any window of length W, from counts instead of a log: smaller where N is large.
    ///
    /// The window is divided into `buckets` and each request counts until a window after the end of
    /// its bucket. So the bound is as strict as that of [`SlidingLog`](Self::SlidingLog), and at most
    /// one bucket's share of the rate is lost beside what guard and buffer cost: a line that never
    /// empties leaves at N / (W + W/buckets), as its slots lie where buckets begin. The store remembers
    /// one count per bucket in which anything departs, and reads all of them for each call: those to
    /// come too, so bound a line that could grow very long by `max_wait` or `max_waiting`.
    SlidingBuckets {
        /// How many buckets a window has, from 1 to 1000: 100 cost at most 1% of the rate.
        buckets: u32,
    },
    /// Every two requests are at least W/N apart.
    ///
    /// The gap is rounded up to whole microseconds, and the guard and the buffer widen it: the rate
    /// is 1 / (W/N + guard + buffer). With the default guard of 5 ms for such short gaps, 10/s
    /// reaches 9.5/s, but 100/s only 67/s. So does, in long lines, a 50,000th of the wait, for the drift
    /// of clocks: 1.2 ms for who waits a minute. A request that costs c keeps c gaps free behind it.
    Spacing,
    /// Requests leave at the rate N/W, one by one, and at most `capacity` wait: a leaky bucket used as a
    /// queue.
    ///
    /// Departures are as for [`Spacing`](Self::Spacing). A request is refused, with
    /// [`Error::is_limited`](crate::Error::is_limited), if it would have to wait longer than the last
    /// of `capacity` requests of cost 1, those of all replicas counted together: for whatever reason,
    /// also because of another quota that holds jointly. A process whose guard is longer, as it was
    /// late, takes more room; and of many hundreds that wait, the drift of clocks takes a few places.
    LeakyBucket {
        /// The most requests that wait, in all processes together; at least 1.
        capacity: u32,
    },
    /// The generic cell rate algorithm (ITU-T I.371, annex A), a leaky bucket used as a meter.
    ///
    /// In any window of length w, at most `burst + w * N/W` depart: a `burst`, then one per W/N,
    /// rounded up to whole microseconds. The guard and the buffer are taken from the burst, so if it
    /// comes as single requests, the last of them departs later by that much, and a look at a full
    /// bucket shows one less: `burst - 1` single requests depart at once, or one that costs `burst`.
    /// The full rate needs a burst whose worth, (burst - 1) * W/N, is no less than guard and buffer.
    /// State is one number. Mind that a `burst` of N lets nearly 2N through in one W: take
    /// [`SlidingLog`](Self::SlidingLog) where that matters.
    Gcra {
        /// The most that may depart at once, as one request, at least 1.
        burst: u32,
    },
    /// At most N in each window of length W, one window after the other: what many APIs count by.
    ///
    /// Up to 2N depart in one W around the boundary of two windows; take
    /// [`SlidingLog`](Self::SlidingLog) where that matters. No request gets a slot so late in a window
    /// that its guard and buffer would reach into the next. State is one window and its count.
    FixedWindow {
        /// Where windows begin.
        start: WindowStart,
    },
}

/// Where the windows of [`Algorithm::FixedWindow`] begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WindowStart {
    /// At the multiples of W on the store's clock, counted from 1970-01-01 00:00 UTC: each whole
    /// minute, hour or day (of UTC). The default.
    #[default]
    Clock,
    /// With the first request, and the next one with the first request after it has ended.
    FirstRequest,
}

impl Quota {
    /// `limit` requests per `window`.
    #[must_use]
    pub const fn new(limit: u32, window: Duration) -> Self {
        Self {
            limit,
            window,
            algorithm: Algorithm::SlidingLog,
        }
    }

    /// `limit` requests per second.
    #[must_use]
    pub const fn per_second(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(1))
    }

    /// `limit` requests per minute.
    #[must_use]
    pub const fn per_minute(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(60))
    }

    /// `limit` requests per hour.
    #[must_use]
    pub const fn per_hour(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(60 * 60))
    }

    /// `limit` requests per day of 24 hours.
    #[must_use]
    pub const fn per_day(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(24 * 60 * 60))
    }

    /// The same quota, counted by this algorithm.
    ///
    /// Default: [`Algorithm::SlidingLog`].
    #[must_use]
    pub const fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// How many requests the window holds.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// How long the window is.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// How departures are counted.
    #[must_use]
    pub const fn counted_by(&self) -> Algorithm {
        self.algorithm
    }

    /// The most one request may cost: what could ever depart at once.
    #[must_use]
    pub const fn largest_cost(&self) -> u32 {
        match self.algorithm {
            Algorithm::Gcra { burst } => burst,
            Algorithm::SlidingLog
            | Algorithm::SlidingBuckets { .. }
            | Algorithm::Spacing
            | Algorithm::LeakyBucket { .. }
            | Algorithm::FixedWindow { .. } => self.limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_no_more_than_what_may_depart_at_once() {
        let quota = Quota::per_second(10);
        assert_eq!(quota.largest_cost(), 10);
        let bursty = quota.algorithm(Algorithm::Gcra { burst: 3 });
        assert_eq!(bursty.largest_cost(), 3);
    }
}
