//! Limits: [`Quota`] and [`Algorithm`].

mod check;
#[cfg(feature = "serde")]
mod serde;
mod text;

use std::time::Duration;

pub use self::text::ParseQuotaError;

/// The longest window: ten years.
pub(crate) const HORIZON: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How many requests may depart per window, and how they are counted.
///
/// `Quota::per_second(10)` means ten per second: with the default algorithm, at most ten in *any* second, not ten in each
/// second of the clock. A quota that cannot hold, such as a limit of 0, is refused when the limiter is built.
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
/// For which one to choose, and how each lets the same burst depart, see [`algorithms`](crate::algorithms).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// At most N in any window of length W, exactly; up to N may depart at once. The default.
    ///
    /// The store keeps the departures of the last window, at most 1,000 times with the units at each, 11 bytes a time.
    /// With a limit of more than 1,000, times are rounded up to about a 1,000th of the window, which gives up at most
    /// 0.2% of the rate.
    #[default]
    SlidingLog,
    /// At most N in any window of length W, with times rounded up to buckets: a smaller state.
    ///
    /// The window is divided into `buckets`, and each departure counts until a window after the end of its bucket. The
    /// bound is as strict as that of [`SlidingLog`](Self::SlidingLog); the rate falls to N / (W + W/buckets) at most.
    SlidingBuckets {
        /// How many buckets a window has, from 1 to 1000: 100 cost at most 1% of the rate.
        buckets: u32,
    },
    /// Every two requests are at least W/N apart.
    ///
    /// The interval is rounded up to whole microseconds, and the guard and the buffer widen it: the rate is
    /// 1 / (W/N + guard + buffer). With the default guard of 5 ms for such short intervals, 10/s reaches 9.5/s, but 100/s
    /// only 67/s. A request of cost c keeps c intervals free behind it.
    Spacing,
    /// Requests leave at the rate N/W, one by one, and each waits as long as `capacity` of them take at most: a leaky bucket
    /// used as a queue.
    ///
    /// Departures are as with [`Spacing`](Self::Spacing). A request fails, with
    /// [`Error::is_limited`](crate::Error::is_limited), if it would have to wait longer than `capacity` requests of cost 1
    /// take, those of all replicas counted together; for whatever reason, also because of another quota.
    LeakyBucket {
        /// The most requests that wait, in all processes together; at least 1.
        capacity: u32,
    },
    /// The generic cell rate algorithm (ITU-T I.371, annex A), a leaky bucket used as a meter.
    ///
    /// In any window of length w, at most `burst + w * N/W` depart: a `burst`, then one per W/N, rounded up to whole
    /// microseconds. The full rate needs a burst that takes, (burst - 1) * W/N, no less than guard and buffer. The state is
    /// one time. A `burst` of N lets nearly 2N through in one W: use [`SlidingLog`](Self::SlidingLog) where that matters.
    Gcra {
        /// The most that may depart at once, as one request, at least 1.
        burst: u32,
    },
    /// At most N in each window of length W, one window after the other: as many APIs count.
    ///
    /// Up to 2N depart in one W around the boundary of two windows; use [`SlidingLog`](Self::SlidingLog) where that
    /// matters. No request is granted so late in a window that its guard and buffer would reach into the next. The state
    /// is one window and its count.
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
