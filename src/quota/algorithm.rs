//! The algorithms, and what depends on them in a quota: [`Algorithm`].

use std::time::Duration;

use super::{CONCURRENT, HORIZON, Quota, unit};

/// How departures are counted against a [`Quota`] of N per W.
///
/// For which one to choose, and how each lets the same burst depart, see [`algorithms`](crate::guide::algorithms).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// At most N in any window of length W, exactly; up to N may depart at once. The default.
    ///
    /// The store keeps the departures of the last window, at most 1,000 times with the units at each, 11 bytes a time.
    /// With a limit of more than 1,000, times are rounded up to multiples of (W + 120 ms)/640, or of W/320 if W is less
    /// than 120 ms, which gives up at most 0.32% of the rate.
    #[default]
    SlidingLog,
    /// At most N in any window of length W, with times rounded up to buckets: a smaller state.
    ///
    /// The window is divided into `buckets`, and each departure counts until a window after the end of its bucket. The
    /// bound is as strict as that of [`SlidingLog`](Self::SlidingLog); the rate is at worst
    /// N / (W + W/buckets + guard + buffer).
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
    /// Requests leave one by one, at the rate 1 / (W/N + guard + buffer), and each waits as long as `capacity` of them take at
    /// most: a leaky bucket used as a queue.
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
    /// At most N in progress at once; made by [`Quota::concurrent`]. There is no window.
    ///
    /// The state is the number of places that each process holds, 25 bytes a process and priority.
    Concurrent {
        /// The time after which the places of a process that does not renew them are free again.
        lease: Duration,
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

/// Shorter leases could not be renewed in time.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// The most buckets in a window: as many entries as the log of a window has.
const MOST_BUCKETS: u32 = 1_000;

impl Quota {
    /// The most one request may cost: what could ever depart at once.
    pub const fn largest_cost(&self) -> u32 {
        match self.algorithm {
            Algorithm::Gcra { burst } => burst,
            _ => self.limit,
        }
    }

    /// Returns why the quota cannot hold.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        use Algorithm::{Concurrent, Gcra, LeakyBucket, SlidingBuckets, Spacing};

        let window = self.window();
        let micros = window.as_micros();
        let is_whole = window.subsec_nanos().is_multiple_of(1_000);
        let counts_places = self.unit == CONCURRENT;
        let is_too_dense = u128::from(self.limit) > micros;
        let is_too_long = |intervals| self.interval().saturating_mul(intervals) > HORIZON;
        Some(match self.algorithm {
            _ if self.limit == 0 => "the limit is zero",
            Concurrent { .. } if !self.window.is_zero() => {
                "a rate has no lease: make a concurrency limit by `Quota::concurrent`"
            }
            Concurrent { .. } if !counts_places => "a concurrency limit counts concurrent-requests",
            Concurrent { lease } if lease < SHORTEST_LEASE => "the lease is shorter than a second",
            Concurrent { lease } if lease > HORIZON => "the lease is longer than ten years",
            _ if counts_places && !matches!(self.algorithm, Concurrent { .. }) => {
                "only `Quota::concurrent` counts concurrent-requests, and it has no other algorithm"
            }
            _ if window.is_zero() => "the window is zero",
            _ if window > HORIZON => "the window is longer than ten years",
            _ if !is_whole => "the window is not in whole microseconds",
            _ if !unit::is_valid(self.unit) => unit::PROBLEM,
            _ if self.default_cost > Some(self.largest_cost()) => {
                "the default cost is more than may depart at once"
            }
            Concurrent { .. } => return None,
            SlidingBuckets { buckets: 0 } => "the number of buckets is zero",
            SlidingBuckets { buckets } if buckets > MOST_BUCKETS => {
                "there are more than 1_000 buckets"
            }
            SlidingBuckets { buckets } if u128::from(buckets) > micros => {
                "the buckets would be shorter than a microsecond"
            }
            Spacing | Gcra { .. } | LeakyBucket { .. } if is_too_dense => {
                "the requests would be less than a microsecond apart"
            }
            LeakyBucket { capacity: 0 } => "the capacity is zero",
            LeakyBucket { capacity } if is_too_long(capacity) => {
                "the capacity is worth longer than ten years"
            }
            Gcra { burst: 0 } => "the burst is zero",
            Gcra { burst } if is_too_long(burst) => "the burst is worth longer than ten years",
            _ => return None,
        })
    }

    /// W/N, rounded up to whole microseconds.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_micros((self.window.as_micros() as u64).div_ceil(self.limit.into()))
    }

    /// The shortest span over which departures are counted against each other.
    pub(crate) fn span(&self) -> Duration {
        match self.algorithm {
            Algorithm::Spacing | Algorithm::LeakyBucket { .. } => self.interval(),
            Algorithm::Gcra { burst } => self.interval() * burst.saturating_sub(1).max(1),
            _ => self.window(),
        }
    }

    /// The part of the quota for one of several processes.
    pub(crate) fn scaled(&self, share: f64) -> Self {
        // A third of 3 is 1, whatever the last digit says.
        let part = |of: u32| (f64::from(of) * share + 1e-6).floor() as u32;
        let longer = |by: f64| {
            let window = self.window().as_secs_f64() * by;
            let longest = HORIZON.as_secs_f64();
            Duration::from_micros((window.min(longest) * 1e6).ceil() as u64)
        };
        let mut scaled = *self;
        match &mut scaled.algorithm {
            Algorithm::Spacing => scaled.window = longer(1.0 / share),
            Algorithm::LeakyBucket { capacity: most } | Algorithm::Gcra { burst: most } => {
                *most = part(*most).max(1);
                scaled.window = longer(1.0 / share);
            }
            Algorithm::Concurrent { .. } => scaled.limit = part(self.limit).max(1),
            _ if part(self.limit) == 0 => {
                scaled.limit = 1;
                scaled.window = longer(1.0 / (f64::from(self.limit) * share));
            }
            _ => scaled.limit = part(self.limit),
        }
        scaled
    }
}
