//! A quota in the terms of its algorithm: [`Rule`].

use super::{
    Count, Counter, fixed_window::FixedWindow, gcra::Gcra, leaky_bucket::LeakyBucket, micros,
    sliding_buckets::SlidingBuckets, sliding_log::SlidingLog, spacing::Spacing,
};
use crate::error::BuildError;
use crate::quota::{Algorithm, HORIZON, Quota, WindowStart};

/// The longest log, as its entries have to fit into one Redis string together with those waiting.
const LONGEST_LOG: u32 = 10_000_000;

/// The most buckets in a window, as all of them are read for each call.
const MOST_BUCKETS: u32 = 1_000;

/// As much as a busy process needs to send a request.
const LONGEST_STAGGER: u64 = 200;

/// A quota in the terms of its algorithm, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// `limit` per `window`.
    SlidingLog { limit: u32, window: u64 },
    /// `limit` per `window`, counted in buckets of this `width`.
    SlidingBuckets { limit: u32, window: u64, width: u64 },
    /// One per `interval`.
    Spacing { interval: u64 },
    /// One per `interval`, while no more than `capacity` wait.
    LeakyBucket { interval: u64, capacity: u32 },
    /// One per `interval`, as far as `tolerance` early.
    Gcra { interval: u64, tolerance: u64 },
    /// `limit` per `window`, where windows begin at multiples of their length or with a request.
    FixedWindow {
        limit: u32,
        window: u64,
        aligned: bool,
    },
}

impl Rule {
    pub(crate) fn new(quota: &Quota) -> Result<Self, BuildError> {
        let refuse = |problem: &str| {
            Err(BuildError::new(
                format!("quota `{quota}`"),
                problem.to_owned(),
            ))
        };
        let limit = quota.limit();
        let window = quota.window();
        if limit == 0 {
            return refuse("the limit is zero");
        }
        if window.is_zero() {
            return refuse("the window is zero");
        }
        if window > HORIZON {
            return refuse("the window is longer than ten years");
        }
        if !window.subsec_nanos().is_multiple_of(1_000) {
            return refuse("the window is not in whole microseconds");
        }
        let window = micros(window);
        let interval = window.div_ceil(u64::from(limit));
        let is_too_dense = u64::from(limit) > window;
        let is_too_long =
            |intervals: u32| u64::from(intervals).saturating_mul(interval) > micros(HORIZON);
        match quota.counted_by() {
            Algorithm::SlidingLog if limit > LONGEST_LOG => {
                refuse("a log holds at most 10_000_000 requests; GCRA holds any number")
            }
            Algorithm::SlidingLog => Ok(Self::SlidingLog { limit, window }),
            Algorithm::SlidingBuckets { buckets: 0 } => refuse("the number of buckets is zero"),
            Algorithm::SlidingBuckets { buckets } if buckets > MOST_BUCKETS => {
                refuse("there are more than 1_000 buckets")
            }
            Algorithm::SlidingBuckets { buckets } if u64::from(buckets) > window => {
                refuse("the buckets would be shorter than a microsecond")
            }
            Algorithm::SlidingBuckets { buckets } => Ok(Self::SlidingBuckets {
                limit,
                window,
                width: window.div_ceil(u64::from(buckets)),
            }),
            Algorithm::Spacing | Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. }
                if is_too_dense =>
            {
                refuse("the requests would be less than a microsecond apart")
            }
            Algorithm::Spacing => Ok(Self::Spacing { interval }),
            Algorithm::LeakyBucket { capacity: 0 } => refuse("the capacity is zero"),
            Algorithm::LeakyBucket { capacity } if is_too_long(capacity) => {
                refuse("the capacity is worth longer than ten years")
            }
            Algorithm::LeakyBucket { capacity } => Ok(Self::LeakyBucket { interval, capacity }),
            Algorithm::Gcra { burst: 0 } => refuse("the burst is zero"),
            Algorithm::Gcra { burst } if is_too_long(burst) => {
                refuse("the burst is worth longer than ten years")
            }
            Algorithm::Gcra { burst } => Ok(Self::Gcra {
                interval,
                tolerance: u64::from(burst - 1) * interval,
            }),
            Algorithm::FixedWindow { start } => Ok(Self::FixedWindow {
                limit,
                window,
                aligned: start == WindowStart::Clock,
            }),
        }
    }

    /// The shortest span over which the rule counts departures against each other.
    pub(crate) fn span(&self) -> u64 {
        match *self {
            Self::SlidingLog { window, .. }
            | Self::SlidingBuckets { window, .. }
            | Self::FixedWindow { window, .. } => window,
            Self::Spacing { interval } | Self::LeakyBucket { interval, .. } => interval,
            Self::Gcra {
                interval,
                tolerance,
            } => tolerance.max(interval),
        }
    }

    /// For how long a departure is counted at most, from when it is recorded on.
    pub(crate) fn memory(&self) -> u64 {
        match *self {
            Self::SlidingLog { window, .. } | Self::FixedWindow { window, .. } => window,
            Self::SlidingBuckets { window, width, .. } => window + width,
            Self::Spacing { interval } => interval,
            Self::LeakyBucket { interval, capacity } => interval.saturating_mul(capacity.into()),
            Self::Gcra {
                interval,
                tolerance,
            } => interval + tolerance,
        }
    }

    /// By how much more of a guard each request of a burst has than the one before it, as they
    /// depart one after the other.
    ///
    /// A burst of the whole limit adds 2% of the window to the last one's. That is a price paid once:
    /// from then on, these requests come so far apart.
    pub(crate) fn stagger(&self) -> Option<u64> {
        match *self {
            Self::SlidingLog { limit, window }
            | Self::SlidingBuckets { limit, window, .. }
            | Self::FixedWindow { limit, window, .. } => {
                Some((window / 50 / u64::from(limit)).min(LONGEST_STAGGER))
            }
            Self::Spacing { .. } | Self::LeakyBucket { .. } | Self::Gcra { .. } => None,
        }
    }

    /// The algorithm's name in Lua and its parameters.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only Redis has twins in Lua")
    )]
    pub(crate) fn parts(&self) -> (&'static str, [u64; 3]) {
        match *self {
            Self::SlidingLog { limit, window } => ("log", [limit.into(), window, 0]),
            Self::SlidingBuckets {
                limit,
                window,
                width,
            } => ("buckets", [limit.into(), window, width]),
            Self::Spacing { interval } => ("spacing", [interval, 0, 0]),
            Self::LeakyBucket { interval, capacity } => ("leaky", [interval, capacity.into(), 0]),
            Self::Gcra {
                interval,
                tolerance,
            } => ("gcra", [interval, tolerance, 0]),
            Self::FixedWindow {
                limit,
                window,
                aligned,
            } => ("fixed", [limit.into(), window, aligned.into()]),
        }
    }

    /// How many numbers the rule adds to the receipt of a slot.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only replies of Redis are parsed")
    )]
    pub(crate) fn receipts(&self) -> usize {
        self.start().receipts()
    }

    pub(super) fn start(&self) -> Counter {
        match *self {
            Self::SlidingLog { limit, window } => {
                Counter::SlidingLog(SlidingLog::new(limit, window))
            }
            Self::SlidingBuckets {
                limit,
                window,
                width,
            } => Counter::SlidingBuckets(SlidingBuckets::new(limit, window, width)),
            Self::Spacing { interval } => Counter::Spacing(Spacing::new(interval)),
            Self::LeakyBucket { interval, capacity } => {
                Counter::LeakyBucket(LeakyBucket::new(interval, capacity))
            }
            Self::Gcra {
                interval,
                tolerance,
            } => Counter::Gcra(Gcra::new(interval, tolerance)),
            Self::FixedWindow {
                limit,
                window,
                aligned,
            } => Counter::FixedWindow(FixedWindow::new(limit, window, aligned)),
        }
    }
}
