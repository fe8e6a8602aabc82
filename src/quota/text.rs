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

/// What a window is counted in.
struct Unit {
    symbol: &'static str,
    also: &'static [&'static str],
    nanos: u64,
}

const fn unit(symbol: &'static str, also: &'static [&'static str], nanos: u64) -> Unit {
    Unit {
        symbol,
        also,
        nanos,
    }
}

/// The units that may be written, from large to small.
const UNITS: [Unit; 6] = [
    unit("d", &["day", "days"], 86_400_000_000_000),
    unit("h", &["hr", "hrs", "hour", "hours"], 3_600_000_000_000),
    unit("m", &["min", "mins", "minute", "minutes"], 60_000_000_000),
    unit("s", &["sec", "secs", "second", "seconds"], 1_000_000_000),
    unit("ms", &["millisecond", "milliseconds"], 1_000_000),
    unit("us", MICROSECOND, 1_000),
];

/// With the micro sign and with the Greek mu, which look the same.
const MICROSECOND: &[&str] = &["\u{b5}s", "\u{3bc}s", "microsecond", "microseconds"];

/// For windows that no limiter accepts, but that an error has to show.
const NANOSECOND: Unit = unit("ns", &[], 1);

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
        for unit in UNITS.iter().chain([&NANOSECOND]) {
            let nanos = u128::from(unit.nanos);
            if self.0.as_nanos() == nanos {
                return f.write_str(unit.symbol);
            }
            if rest >= nanos {
                write!(f, "{}{}", Grouped(rest / nanos), unit.symbol)?;
            }
            rest %= nanos;
        }
        if self.0.is_zero() {
            f.write_str("0ns")?;
        }
        Ok(())
    }
}
