//! Quotas as text: `Display` and `FromStr` of [`Quota`].

#[cfg(test)]
mod tests;

use std::fmt;
use std::iter::Peekable;
use std::str::FromStr;
use std::time::Duration;

use super::unit;
use super::{Algorithm, CONCURRENT, Quota, REQUESTS, WindowStart};
use crate::error::BuildError;

/// The units in which windows are shown, with their lengths in nanoseconds, from large to small. No limiter accepts
/// nanoseconds, but an error has to show them.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

const QUOTA: &str = "LIMIT/WINDOW, such as 10/s, or LIMIT concurrent";
const WINDOW: &str = "a unit, or counts with units, such as s, 90s or 1m30s";
const ALGORITHM: &str =
    "one of sliding-log, sliding-buckets, spacing, leaky-bucket, gcra, fixed-window";

/// Shows the one canonical text, which parses to the same quota: equal quotas have equal texts, and
/// different quotas different ones.
///
/// Options that were not set are left out, except the lease.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.limit)?;
        let is_rate = !matches!(self.algorithm, Algorithm::Concurrent { .. });
        if is_rate || !self.window.is_zero() {
            let window = Window(self.window).to_string();
            let unit = window.strip_prefix('1');
            let unit = unit.filter(|unit| unit.bytes().all(|it| it.is_ascii_alphabetic()));
            write!(f, "/{}", unit.unwrap_or(&window))?;
        }
        match self.algorithm {
            Algorithm::SlidingLog => Ok(()),
            Algorithm::SlidingBuckets { buckets } => {
                write!(f, " sliding-buckets buckets={buckets}")
            }
            Algorithm::Spacing => f.write_str(" spacing"),
            Algorithm::LeakyBucket { capacity } => {
                write!(f, " leaky-bucket capacity={capacity}")
            }
            Algorithm::Gcra { burst } => write!(f, " gcra burst={burst}"),
            Algorithm::FixedWindow { start } => f.write_str(match start {
                WindowStart::Clock => " fixed-window",
                WindowStart::FirstRequest => " fixed-window start=first-request",
            }),
            Algorithm::Concurrent { lease } => {
                write!(f, " concurrent lease={}", Window(lease))
            }
        }?;
        if self.unit != REQUESTS && self.unit != CONCURRENT {
            write!(f, " unit={}", self.unit)?;
        }
        match self.default_cost {
            Some(cost) => write!(f, " default_cost={cost}"),
            None => Ok(()),
        }
    }
}

/// Parses `LIMIT/WINDOW [ALGORITHM [OPTION=VALUE]] [unit=NAME] [default_cost=COUNT]`, or
/// `LIMIT concurrent [lease=TIME] [default_cost=COUNT]`, as described at [`Quota`](Quota#as-text).
///
/// # Errors
///
/// A text that does not follow the grammar, or whose quota could not hold: what
/// [`build`](crate::LimiterBuilder::build) would refuse of a single quota is refused here.
///
/// ```
/// use tower_throttle::Quota;
///
/// let error = "10/fortnight".parse::<Quota>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "quota \"10/fortnight\": unexpected \"fortnight\", expected a unit, or counts with units, such as s, 90s or 1m30s",
/// );
/// ```
impl FromStr for Quota {
    type Err = BuildError;

    fn from_str(text: &str) -> Result<Self, BuildError> {
        parse(text).map_err(|problem| BuildError::new(format!("quota {}", quote(text)), problem))
    }
}

fn parse(text: &str) -> Result<Quota, String> {
    let mut words = text.split_ascii_whitespace().peekable();
    let rate = words.next().unwrap_or_default();
    let mut quota = match pair(rate, '/') {
        Some((limit, window)) => {
            let quota = Quota::new(parse_count("limit", limit)?, parse_window(window)?);
            let name = words.next_if(|word| option(word).is_none());
            quota.algorithm(parse_algorithm(name.unwrap_or_default(), &mut words)?)
        }
        None if (words.next_if(|word| word.eq_ignore_ascii_case("concurrent"))).is_some() => {
            let quota = Quota::concurrent(parse_count("limit", rate)?);
            let lease = words.next_if(|word| option(word).is_none());
            match lease.map(|word| pair(word, '=').ok_or(word)) {
                None => quota,
                Some(Ok((name, lease))) if name.eq_ignore_ascii_case("lease") => {
                    quota.lease(parse_window(lease)?)
                }
                Some(_) => return Err(unexpected(lease.unwrap_or_default(), "lease=TIME")),
            }
        }
        None => return Err(unexpected(rate, QUOTA)),
    };
    while let Some((is_unit, value)) = words.peek().copied().and_then(option) {
        words.next();
        if is_unit {
            quota.unit = unit::parse(value)?;
        } else {
            quota.default_cost = Some(parse_count("default_cost", value)?);
        }
    }
    match (words.next(), quota.problem()) {
        (Some(word), _) => Err(unexpected(word, "the end of the text")),
        (None, Some(problem)) => Err(problem.to_owned()),
        (None, None) => Ok(quota),
    }
}

/// The value of an option that every algorithm has: the unit (true), or the default cost.
fn option(word: &str) -> Option<(bool, &str)> {
    let (name, value) = pair(word, '=')?;
    let is_unit = name.eq_ignore_ascii_case("unit");
    (is_unit || name.eq_ignore_ascii_case("default_cost")).then_some((is_unit, value))
}

/// Reads a duration with units. Long texts and numbers are refused, as `humantime` panics where their sum overflows.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    if text.len() > 64 || numbers.any(|number| number.len() > 9) {
        return Err("a number is too long".to_owned());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

/// A unit alone, or counts with units.
fn parse_window(text: &str) -> Result<Duration, String> {
    let counts = text.to_lowercase().replace('_', "");
    let is_unit = !text.contains(|c: char| c.is_ascii_digit());
    let counts = if is_unit {
        format!("1{counts}")
    } else {
        counts
    };
    // `M` could be minutes or months.
    let is_ambiguous = text
        .split(|c: char| !c.is_alphabetic())
        .any(|unit| unit == "M");
    let window = parse_duration(&counts).ok();
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_');
    let window = window.filter(|_| text.chars().all(is_plain) && !is_ambiguous);
    window.ok_or_else(|| unexpected(text, WINDOW))
}

fn parse_algorithm<'a>(
    name: &str,
    words: &mut Peekable<impl Iterator<Item = &'a str>>,
) -> Result<Algorithm, String> {
    let mut count = |option: &str| {
        let word = words.next().unwrap_or_default();
        match pair(word, '=') {
            Some((name, value)) if name.eq_ignore_ascii_case(option) => parse_count(option, value),
            _ => Err(unexpected(word, &format!("{option}=COUNT"))),
        }
    };
    Ok(match name.to_ascii_lowercase().as_str() {
        "" | "sliding-log" => Algorithm::SlidingLog,
        "sliding-buckets" => Algorithm::SlidingBuckets {
            buckets: count("buckets")?,
        },
        "spacing" => Algorithm::Spacing,
        "leaky-bucket" => Algorithm::LeakyBucket {
            capacity: count("capacity")?,
        },
        "gcra" => Algorithm::Gcra {
            burst: count("burst")?,
        },
        "fixed-window" => {
            let start = words.next_if(|word| option(word).is_none());
            let start = start.unwrap_or_default();
            let start = match start.to_ascii_lowercase().as_str() {
                "" | "start=clock" => WindowStart::Clock,
                "start=first-request" => WindowStart::FirstRequest,
                _ => return Err(unexpected(start, "start=clock or start=first-request")),
            };
            Algorithm::FixedWindow { start }
        }
        _ => {
            let name = quote(name);
            return Err(format!("unknown algorithm {name}, expected {ALGORITHM}"));
        }
    })
}

/// A number of requests or of their units: digits that may have single `_` between them.
fn parse_count(what: &str, text: &str) -> Result<u32, String> {
    let is_digits = |group: &str| !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit());
    let quoted = quote(text);
    if !text.split('_').all(is_digits) {
        return Err(format!(
            "{what} {quoted} is not a whole number, expected digits, such as 5_000"
        ));
    }
    let number = text.replace('_', "").parse();
    number.map_err(|_| format!("{what} {quoted} is too large, expected at most 4_294_967_295"))
}

/// The parts before and after the first such character, if neither is empty.
fn pair(text: &str, separator: char) -> Option<(&str, &str)> {
    let pair = text.split_once(separator);
    pair.filter(|(one, other)| !one.is_empty() && !other.is_empty())
}

fn unexpected(part: &str, expected: &str) -> String {
    match part {
        "" => format!("unexpected end of text, expected {expected}"),
        _ => format!("unexpected {}, expected {expected}", quote(part)),
    }
}

/// The beginning of a text, between quotation marks and without control characters.
fn quote(text: &str) -> String {
    /// In characters.
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// A window as counts of units from large to small.
struct Window(Duration);

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_nanos();
        for (symbol, nanos) in UNITS {
            let nanos = u128::from(nanos);
            if rest >= nanos {
                write!(f, "{}{symbol}", rest / nanos)?;
            }
            rest %= nanos;
        }
        if self.0.is_zero() {
            f.write_str("0ns")?;
        }
        Ok(())
    }
}
