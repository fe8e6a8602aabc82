//! A quota as text, such as `100/m gcra burst=20`: `Display` and `FromStr` of [`Quota`].

mod error;
mod parse;
mod part;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use self::error::ParseQuotaError;
use self::part::Part;
use super::{Algorithm, Quota, WindowStart};

/// The names of each unit of a window, and its length in nanoseconds, from large to small. The first name is shown.
const UNITS: [(&[&str], u64); 6] = [
    (&["d", "day", "days"], 86_400_000_000_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000_000_000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000_000_000),
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000_000),
    (&["ms", "millisecond", "milliseconds"], 1_000_000),
    (MICROSECOND, 1_000),
];

/// With the micro sign and with the Greek mu, which look the same.
const MICROSECOND: &[&str] = &["us", "\u{b5}s", "\u{3bc}s", "microsecond", "microseconds"];

/// Shows the one canonical text, which parses to the same quota: equal quotas have equal texts, and
/// different quotas different ones.
///
/// What is the default, or follows from the rest, is left out.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Grouped(self.limit.into()), Window(self.window))?;
        let count = |count: u32| Grouped(count.into());
        match self.algorithm {
            Algorithm::SlidingLog => Ok(()),
            Algorithm::SlidingBuckets { buckets } => {
                write!(f, " sliding-buckets buckets={}", count(buckets))
            }
            Algorithm::Spacing => f.write_str(" spacing"),
            Algorithm::LeakyBucket { capacity } => {
                write!(f, " leaky-bucket capacity={}", count(capacity))
            }
            Algorithm::Gcra { burst } => write!(f, " gcra burst={}", count(burst)),
            Algorithm::FixedWindow {
                start: WindowStart::Clock,
            } => f.write_str(" fixed-window"),
            Algorithm::FixedWindow {
                start: WindowStart::FirstRequest,
            } => f.write_str(" fixed-window start=first-request"),
        }
    }
}

/// Parses `LIMIT/WINDOW [ALGORITHM [OPTION=VALUE]]`, as described at [`Quota`](Quota#as-text).
///
/// # Errors
///
/// A text that does not follow the grammar, or whose quota could not hold: what
/// [`build`](crate::LimiterBuilder::build) would refuse of a single quota is refused here, with the
/// part at fault.
///
/// ```
/// use tower_throttle::Quota;
///
/// let error = "10/fortnight".parse::<Quota>().unwrap_err();
/// assert_eq!(error.span(), 3..12);
/// assert_eq!(
///     error.to_string(),
///     "quota \"10/fortnight\": unknown unit \"fortnight\" at byte 3, \
///      expected one of d, h, m, s, ms, us",
/// );
/// ```
impl FromStr for Quota {
    type Err = ParseQuotaError;

    fn from_str(text: &str) -> Result<Self, ParseQuotaError> {
        parse::quota(Part::new(text))
    }
}

/// A number with `_` between its thousands.
struct Grouped(u128);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{}", self.0),
            _ => write!(f, "{}_{:03}", Self(self.0 / 1_000), self.0 % 1_000),
        }
    }
}

/// A window as a unit alone, or as counts of units from large to small.
struct Window(Duration);

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_nanos();
        // No limiter accepts nanoseconds, but an error has to show them.
        let shown = UNITS.map(|(names, nanos)| (names[0], nanos));
        for (symbol, nanos) in shown.into_iter().chain([("ns", 1)]) {
            let nanos = u128::from(nanos);
            if self.0.as_nanos() == nanos {
                return f.write_str(symbol);
            }
            if rest >= nanos {
                write!(f, "{}{symbol}", Grouped(rest / nanos))?;
            }
            rest %= nanos;
        }
        if self.0.is_zero() {
            f.write_str("0ns")?;
        }
        Ok(())
    }
}
