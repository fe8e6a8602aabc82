//! Limits: [`Quota`] and [`Algorithm`].

mod algorithm;
#[cfg(feature = "serde")]
mod serde;
mod text;
mod unit;

use std::time::Duration;

pub use self::algorithm::{Algorithm, WindowStart};
pub(crate) use self::text::parse_duration;
pub(crate) use self::unit::{
    CONCURRENT, MOST_UNITS, REQUESTS, UnitNames, interned as interned_units, parse as parse_unit,
    units_of,
};

/// The lease of a concurrency limit that sets none.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

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
///
/// let tokens = Quota::per_minute(100_000).unit("tokens");
/// assert_eq!(tokens.unit_name(), "tokens");
/// ```
///
/// # As text
///
/// A quota is parsed from, and shown as, `LIMIT/WINDOW [ALGORITHM [OPTION=VALUE]] [unit=NAME] [default_cost=COUNT]`, or
/// `LIMIT concurrent [lease=TIME] [default_cost=COUNT]`:
///
/// ```
/// # use std::time::Duration;
/// use tower_throttle::{Algorithm, Quota};
///
/// let quota: Quota = "100/m gcra burst=20".parse()?;
/// assert_eq!(quota, Quota::per_minute(100).algorithm(Algorithm::Gcra { burst: 20 }));
/// assert_eq!(quota.to_string(), "100/m gcra burst=20");
///
/// let tokens: Quota = "100_000/m unit=tokens".parse()?;
/// assert_eq!(tokens, Quota::per_minute(100_000).unit("tokens"));
///
/// assert_eq!("20 concurrent".parse(), Ok(Quota::concurrent(20)));
/// assert_eq!("600/1m30s".parse(), Ok(Quota::new(600, Duration::from_secs(90))));
/// assert_eq!("5000/60min".parse::<Quota>()?.to_string(), "5000/h");
/// # Ok::<_, tower_throttle::BuildError>(())
/// ```
///
/// - A number is made of digits, with single `_` between them or without.
/// - The window is a unit alone, for one of it, or counts of units: `d`, `h`, `m`, `s`, `ms` and `us`, or longer names such as
///   `min`, `sec` and `hours`, as [humantime](https://docs.rs/humantime) reads them.
/// - The algorithm is `sliding-log`, the default, `sliding-buckets buckets=COUNT`, `spacing`,
///   `leaky-bucket capacity=COUNT`, `gcra burst=COUNT`, or `fixed-window`, which begins windows by
///   `start=clock`, the default, or `start=first-request`.
/// - The lease is written as a window is, and 30 seconds unless it is given.
/// - The [unit](Self::unit) is `requests` unless it is given. The [default cost](Self::default_cost) is 1 for requests and
///   places, and none for other units.
/// - Words are separated by white space, of which there may be more around them. Upper case
///   is as good as lower case, except in `M`, which could be months.
///
/// Quotas that could not hold are no quotas here: parsing refuses, with a [`BuildError`](crate::BuildError), what
/// building a limiter would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a quota does nothing until a limiter has it"]
pub struct Quota {
    limit: u32,
    window: Duration,
    algorithm: Algorithm,
    unit: &'static str,
    pub(crate) default_cost: Option<u32>,
}

impl Quota {
    /// `limit` requests per `window`.
    pub const fn new(limit: u32, window: Duration) -> Self {
        Self {
            limit,
            window,
            algorithm: Algorithm::SlidingLog,
            unit: REQUESTS,
            default_cost: None,
        }
    }

    /// `limit` requests per second.
    pub const fn per_second(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(1))
    }

    /// `limit` requests per minute.
    pub const fn per_minute(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(60))
    }

    /// `limit` requests per hour.
    pub const fn per_hour(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(60 * 60))
    }

    /// `limit` requests per day of 24 hours.
    pub const fn per_day(limit: u32) -> Self {
        Self::new(limit, Duration::from_secs(24 * 60 * 60))
    }

    /// At most `limit` requests in progress at once, in all processes: a place is taken when a request departs, and is
    /// free again once its work has ended. See [`concurrency`](crate::guide::concurrency).
    ///
    /// ```
    /// # use std::time::Duration;
    /// use tower_throttle::{Limiter, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder()
    ///     .quota(Quota::concurrent(20).lease(Duration::from_secs(10)))
    ///     .quota(Quota::per_minute(600))
    ///     .build()?;
    /// let place = limiter.acquire("api").await?.hold();
    /// assert_eq!(limiter.peek("api").await?.remaining_of("concurrent-requests"), Some(19));
    /// drop(place);
    /// assert_eq!(limiter.peek("api").await?.remaining_of("concurrent-requests"), Some(20));
    /// # Ok(())
    /// # }
    /// ```
    pub const fn concurrent(limit: u32) -> Self {
        let quota = Self::new(limit, Duration::ZERO);
        quota.lease(LEASE).unit(CONCURRENT)
    }

    /// Sets after which time the places of a process that has died are free again, at least 1 s.
    ///
    /// Default: 30 s. It is for a quota made by [`concurrent`](Self::concurrent); any other is refused with it.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.algorithm = Algorithm::Concurrent { lease };
        self
    }

    /// The same quota, counted by this algorithm.
    ///
    /// Default: [`Algorithm::SlidingLog`].
    pub const fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// Counts this unit instead of requests: tokens, bytes, points.
    ///
    /// A request says [what it costs](crate::Acquire::cost_of) in each unit. A name has at most 31 of the characters a to
    /// z, 0 to 9, `-`, `_` and `.`, and a policy at most four units, with `requests` and `concurrent-requests`.
    pub const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Sets what a request costs that names no cost in this unit.
    ///
    /// Default: 1 for requests and for places. Under a quota of another unit, such a request [fails](crate::ErrorKind::InvalidCost).
    pub const fn default_cost(mut self, cost: u32) -> Self {
        self.default_cost = Some(cost);
        self
    }

    /// How many requests the window holds, or how many may be in progress.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// How long the window is; of a concurrency limit, the lease.
    pub const fn window(&self) -> Duration {
        match self.algorithm {
            Algorithm::Concurrent { lease } => lease,
            _ => self.window,
        }
    }

    /// What is counted.
    pub const fn unit_name(&self) -> &'static str {
        self.unit
    }

    /// How departures are counted.
    pub const fn counted_by(&self) -> Algorithm {
        self.algorithm
    }
}
