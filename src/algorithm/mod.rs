//! How departures are counted, each way once in Rust and once in Lua.
//!
//! An algorithm is two functions over its state: `earliest`, the first time from which one more
//! request may depart, and `take`, which records a departure. A third, `give_back`, forgets a
//! departure that did not come about. The rest is bookkeeping. [`ledger`] joins the quotas of one
//! key, in Rust and in Lua alike.
//!
//! All times are whole microseconds on the store's clock, in a `u64` here and in a double there,
//! which holds them exactly for as long as this calendar matters. A departure is recorded not at
//! its slot but at the latest moment at which it can reach the upstream: see [`ledger`].

use crate::error::BuildError;
use crate::quota::{Algorithm, HORIZON, Quota};

mod gcra;
pub(crate) mod ledger;
mod number;
#[cfg(test)]
pub(crate) mod simulation;
mod sliding_log;
mod spacing;

use self::{gcra::Gcra, sliding_log::SlidingLog, spacing::Spacing};

/// The longest log, as its entries have to fit into one Redis string together with those waiting.
const LONGEST_LOG: u32 = 10_000_000;

/// As much as a busy process needs to send a request.
const LONGEST_STAGGER: u64 = 200;

/// A quota in the terms of its algorithm, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// `limit` per `window`.
    SlidingLog { limit: u32, window: u64 },
    /// One per `interval`.
    Spacing { interval: u64 },
    /// One per `interval`, as far as `tolerance` early.
    Gcra { interval: u64, tolerance: u64 },
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
        let too_dense = u64::from(limit) > window;
        match quota.counted_by() {
            Algorithm::SlidingLog if limit > LONGEST_LOG => {
                refuse("a log holds at most 10 000 000 requests; GCRA holds any number")
            }
            Algorithm::SlidingLog => Ok(Self::SlidingLog { limit, window }),
            Algorithm::Spacing | Algorithm::Gcra { .. } if too_dense => {
                refuse("the requests would be less than a microsecond apart")
            }
            Algorithm::Spacing => Ok(Self::Spacing { interval }),
            Algorithm::Gcra { burst: 0 } => refuse("the burst is zero"),
            Algorithm::Gcra { burst } => {
                let tolerance = u64::from(burst - 1).saturating_mul(interval);
                if tolerance.saturating_add(interval) > micros(HORIZON) {
                    return refuse("the burst is worth longer than ten years");
                }
                Ok(Self::Gcra {
                    interval,
                    tolerance,
                })
            }
        }
    }

    /// The shortest span over which the rule keeps two departures apart.
    pub(crate) fn span(&self) -> u64 {
        match *self {
            Self::SlidingLog { window, .. } => window,
            Self::Spacing { interval } => interval,
            Self::Gcra {
                interval,
                tolerance,
            } => tolerance.max(interval),
        }
    }

    /// By how much more of a guard each request of a burst has than the one before it, as they
    /// depart one after the other.
    ///
    /// A burst of the whole limit adds 2% of the window to the last one's. That is a price paid once:
    /// from then on, these requests come so far apart.
    pub(crate) fn stagger(&self) -> Option<u64> {
        match *self {
            Self::SlidingLog { limit, window } => {
                Some((window / 50 / u64::from(limit)).min(LONGEST_STAGGER))
            }
            Self::Spacing { .. } | Self::Gcra { .. } => None,
        }
    }

    /// What the state of this rule is called in the names of Redis keys.
    pub(crate) fn id(&self) -> String {
        let (name, a, b) = self.parts();
        format!("{name}-{a}-{b}")
    }

    /// The algorithm's name in Lua and its two parameters.
    pub(crate) fn parts(&self) -> (&'static str, u64, u64) {
        match *self {
            Self::SlidingLog { limit, window } => ("log", limit.into(), window),
            Self::Spacing { interval } => ("spacing", interval, 0),
            Self::Gcra {
                interval,
                tolerance,
            } => ("gcra", interval, tolerance),
        }
    }

    /// Whether the state is a number, so that a slot's receipt holds what it was before.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only replies of Redis are parsed")
    )]
    pub(crate) fn is_number(&self) -> bool {
        !matches!(self, Self::SlidingLog { .. })
    }

    fn start(&self) -> Counter {
        match *self {
            Self::SlidingLog { limit, window } => {
                Counter::SlidingLog(SlidingLog::new(limit, window))
            }
            Self::Spacing { interval } => Counter::Spacing(Spacing::new(interval)),
            Self::Gcra {
                interval,
                tolerance,
            } => Counter::Gcra(Gcra::new(interval, tolerance)),
        }
    }
}

/// The state of one quota of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Counter {
    SlidingLog(SlidingLog),
    Spacing(Spacing),
    Gcra(Gcra),
}

impl Counter {
    /// Forgets what has no influence any more from `now` on.
    fn trim(&mut self, now: u64) {
        if let Self::SlidingLog(log) = self {
            log.trim(now);
        }
    }

    /// The first time, not before `x`, at which requests worth `cost` may depart at once.
    fn earliest(&self, x: u64, cost: u32) -> u64 {
        match self {
            Self::SlidingLog(log) => log.earliest(x, cost),
            Self::Spacing(spacing) => spacing.earliest(x, cost),
            Self::Gcra(gcra) => gcra.earliest(x, cost),
        }
    }

    /// The least that the next departure may be recorded at.
    fn last_record(&self) -> u64 {
        match self {
            Self::SlidingLog(log) => log.last().unwrap_or(0),
            Self::Spacing(_) | Self::Gcra(_) => 0,
        }
    }

    /// Records a departure; where the state is a number, returns what it was before.
    fn take(&mut self, record: u64, cost: u32) -> Option<u64> {
        match self {
            Self::SlidingLog(log) => {
                log.take(record, cost);
                None
            }
            Self::Spacing(Spacing(number))
            | Self::Gcra(Gcra {
                arrival: number, ..
            }) => Some(number.take(record, cost)),
        }
    }

    /// Whether nothing has been taken since this departure.
    fn is_last(&self, record: u64, cost: u32, before: Option<u64>) -> bool {
        match self {
            Self::SlidingLog(log) => log.is_last(record, cost),
            Self::Spacing(Spacing(number))
            | Self::Gcra(Gcra {
                arrival: number, ..
            }) => number.is_last(record, cost, before),
        }
    }

    /// Forgets this departure, as far as the state allows it.
    fn give_back(&mut self, record: u64, cost: u32, before: Option<u64>, now: u64) {
        match self {
            Self::SlidingLog(log) => log.give_back(record, cost, now),
            Self::Spacing(Spacing(number))
            | Self::Gcra(Gcra {
                arrival: number, ..
            }) => {
                number.give_back(record, cost, before);
            }
        }
    }

    /// How many requests of cost 1 may depart at `now`.
    fn remaining(&self, now: u64) -> u32 {
        match self {
            Self::SlidingLog(log) => log.remaining(now),
            Self::Spacing(spacing) => spacing.remaining(now),
            Self::Gcra(gcra) => gcra.remaining(now),
        }
    }

    /// The time from which the state has no influence any more.
    fn expires(&self) -> u64 {
        match self {
            Self::SlidingLog(log) => log.expires(),
            Self::Spacing(Spacing(number))
            | Self::Gcra(Gcra {
                arrival: number, ..
            }) => number.time,
        }
    }

    /// Whether `take` returns a number.
    fn is_number(&self) -> bool {
        !matches!(self, Self::SlidingLog(_))
    }
}

pub(crate) fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
