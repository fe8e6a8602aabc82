//! The headers of a response, which may be malformed, and the time at its origin: [`Lines`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{AGE, DATE};
use http::{HeaderMap, HeaderName};

use super::number::seconds;
use crate::quota::parse_duration;
use crate::telemetry;

/// From here on a number is a time of the Unix clock, in seconds. As a time it is one of the year 2001;
/// as a delay it would be one of 31 years.
const UNIX_SECONDS: u64 = 1_000_000_000;

/// From here on it is one in milliseconds. As seconds it would be a time in the year 5138.
const UNIX_MILLIS: u64 = 100_000_000_000;

/// So many lines of a header, and values of a line, are read. An upstream cannot make a client busy with more.
pub(super) const MOST_VALUES: usize = 64;

/// The header lines of a response.
///
/// Moments that a response names are moments of its origin's clock. To measure from its own `Date` needs no agreement
/// between the two hosts' clocks. As a `Date` has no fraction, the time until then comes out longer by up to a second,
/// and never shorter.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) local: SystemTime,
    /// Whether a malformed header was reported before.
    pub(super) is_warned: &'a AtomicBool,
}

impl Lines<'_> {
    /// The values of all lines of a header. A line is one value, or several with commas between them; it is
    /// left out if any of them is malformed.
    pub(super) fn values<T>(&self, name: &str, value: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let value = |text: &str| value(text.trim());
        // The whole comes first, as a date has a comma of its own.
        let values = |line: &str| match value(line) {
            Some(value) => Some(vec![value]),
            None => line.split(',').take(MOST_VALUES).map(value).collect(),
        };
        let lines = self.headers.get_all(name).iter().take(MOST_VALUES);
        let lines = lines.filter_map(|line| {
            let values = line.to_str().ok().and_then(values);
            if values.is_none() {
                self.malformed(name);
            }
            values
        });
        lines.flatten().collect()
    }

    /// A header is ignored, as it is malformed.
    pub(super) fn malformed(&self, name: &str) {
        if !self.is_warned.swap(true, Ordering::Relaxed) {
            telemetry::malformed(name);
        }
    }

    /// The time until a reset: seconds from now, seconds or milliseconds of the Unix clock, a duration with units, or a
    /// date of HTTP or of RFC 3339 in UTC.
    pub(super) fn until(&self, text: &str) -> Option<Duration> {
        let utc = || humantime::parse_rfc3339(text).ok().map(since_epoch);
        let at = match seconds(text) {
            Some(number) => match number.as_secs() {
                ..UNIX_SECONDS => return Some(number),
                UNIX_SECONDS..UNIX_MILLIS => number,
                UNIX_MILLIS.. => number / 1000,
            },
            None => match parse_duration(text) {
                Ok(duration) => return Some(duration),
                Err(_) => date(text).or_else(utc)?,
            },
        };
        Some(at.saturating_sub(self.now()))
    }

    /// The time at the origin since the Unix epoch, by the response's `Date`, or by the local clock without one.
    fn now(&self) -> Duration {
        match first(self.headers, DATE).and_then(date) {
            Some(date) => date.saturating_add(age(self.headers)),
            None => since_epoch(self.local),
        }
    }
}

/// How long the response has been in caches, as [RFC 9111] has it: the first of several counts.
///
/// [RFC 9111]: https://www.rfc-editor.org/rfc/rfc9111#section-5.1
pub(super) fn age(headers: &HeaderMap) -> Duration {
    let age = first(headers, AGE).and_then(|line| line.split(',').next());
    age.and_then(|age| seconds(age.trim())).unwrap_or_default()
}

fn first(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// An HTTP date of any of the three formats.
fn date(text: &str) -> Option<Duration> {
    httpdate::parse_http_date(text).ok().map(since_epoch)
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}
