//! Whether a quota can hold.

use std::time::Duration;

use super::{Algorithm, HORIZON, Quota};
use crate::error::BuildError;

/// The most buckets in a window: as many entries as the log of a window has.
const MOST_BUCKETS: u32 = 1_000;

impl Quota {
    /// Fails, with the quota and the problem, if it cannot hold.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        self.problem().map_or(Ok(()), |problem| {
            Err(BuildError::new(format!("quota `{self}`"), problem))
        })
    }

    fn problem(&self) -> Option<&'static str> {
        if self.limit == 0 {
            return Some("the limit is zero");
        }
        if self.window.is_zero() {
            return Some("the window is zero");
        }
        if self.window > HORIZON {
            return Some("the window is longer than ten years");
        }
        if !self.window.subsec_nanos().is_multiple_of(1_000) {
            return Some("the window is not in whole microseconds");
        }
        let is_too_long = |intervals: u32| self.interval().saturating_mul(intervals) > HORIZON;
        let is_too_dense = u128::from(self.limit) > self.window.as_micros();
        match self.algorithm {
            Algorithm::SlidingBuckets { buckets: 0 } => Some("the number of buckets is zero"),
            Algorithm::SlidingBuckets { buckets } if buckets > MOST_BUCKETS => {
                Some("there are more than 1_000 buckets")
            }
            Algorithm::SlidingBuckets { buckets }
                if u128::from(buckets) > self.window.as_micros() =>
            {
                Some("the buckets would be shorter than a microsecond")
            }
            Algorithm::Spacing | Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. }
                if is_too_dense =>
            {
                Some("the requests would be less than a microsecond apart")
            }
            Algorithm::LeakyBucket { capacity: 0 } => Some("the capacity is zero"),
            Algorithm::LeakyBucket { capacity } if is_too_long(capacity) => {
                Some("the capacity is worth longer than ten years")
            }
            Algorithm::Gcra { burst: 0 } => Some("the burst is zero"),
            Algorithm::Gcra { burst } if is_too_long(burst) => {
                Some("the burst is worth longer than ten years")
            }
            _ => None,
        }
    }

    /// W/N, rounded up to whole microseconds.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_micros((self.window.as_micros() as u64).div_ceil(self.limit.into()))
    }

    /// The shortest span over which departures are counted against each other.
    pub(crate) fn span(&self) -> Duration {
        match self.algorithm {
            Algorithm::SlidingLog
            | Algorithm::SlidingBuckets { .. }
            | Algorithm::FixedWindow { .. } => self.window,
            Algorithm::Spacing | Algorithm::LeakyBucket { .. } => self.interval(),
            Algorithm::Gcra { burst } => self.interval() * burst.saturating_sub(1).max(1),
        }
    }
}
