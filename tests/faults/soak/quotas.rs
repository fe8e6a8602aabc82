//! The quotas that take turns, and what each promises.

use std::time::Duration;

use tower_throttle::{Algorithm, Quota};

/// Departures of the same subject count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    pub(crate) key: usize,
    /// The number of the quotas under which the request began.
    pub(crate) set: usize,
    /// True under strict recovery.
    pub(crate) is_strict: bool,
}

/// Each in the place of the one before, at a time of chance; the first is where a run begins.
pub(crate) const SETS: [&[&str]; 5] = [
    &["10/500ms"],
    &["12/s", "30/3s"],
    &["15/s sliding-buckets buckets=20"],
    &["12/s gcra burst=6"],
    &["16/s spacing"],
];

/// The longest window of all.
pub(crate) const LONGEST: Duration = Duration::from_secs(3);

pub(crate) fn set(number: usize) -> Vec<Quota> {
    let quotas = SETS[number].iter();
    quotas.map(|it| it.parse().expect("a quota")).collect()
}

/// The most that may depart within a time.
pub(crate) fn most(number: usize, within: Duration) -> u64 {
    let most = set(number).into_iter().map(|quota| {
        let bound = Bound::of(quota);
        bound.most * within.as_micros().div_ceil(bound.window.as_micros()) as u64
    });
    most.min().expect("a quota")
}

/// The most in any window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) most: u64,
    pub(crate) window: Duration,
    /// Whether a request counts as much as it costs, and not as one.
    pub(crate) by_cost: bool,
}

impl Bound {
    /// As [`algorithms`](tower_throttle::guide::algorithms) says.
    pub(crate) fn of(quota: Quota) -> Self {
        let (limit, window) = (quota.limit(), quota.window());
        let (most, window) = match quota.counted_by() {
            Algorithm::SlidingLog | Algorithm::SlidingBuckets { .. } => (limit, window),
            Algorithm::Gcra { burst } => (burst + limit, window),
            // The cost of a request keeps the time after it free.
            Algorithm::Spacing => (1, window / limit),
            other => panic!("of {other:?} something else is promised"),
        };
        Self {
            most: most.into(),
            window,
            by_cost: quota.counted_by() != Algorithm::Spacing,
        }
    }
}
