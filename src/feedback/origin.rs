//! The time at the origin, according to its response: [`OriginClock`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::{AGE, DATE};

use super::lines::Lines;
use super::number::{duration, seconds};

/// From here on a number is a time of the Unix clock, in seconds. As a time it is one of the year 2001;
/// as a delay it would be one of 31 years.
const UNIX_SECONDS: u64 = 1_000_000_000;

/// From here on it is one in milliseconds. As seconds it would be a time in the year 5138.
const UNIX_MILLIS: u64 = 100_000_000_000;

/// Says what time it is at the origin when the response is read.
///
/// Moments that the response names are moments of that clock. To measure from its own `Date` needs
/// no agreement between the two hosts' clocks. As a `Date` has no fraction, the time until then comes
/// out longer by up to a second, and never shorter.
///
/// The `Date` is looked at only when such a moment is named.
#[derive(Debug, Clone, Copy)]
pub(super) struct OriginClock<'a> {
    lines: &'a Lines<'a>,
    local: SystemTime,
}

impl<'a> OriginClock<'a> {
    pub(super) fn new(lines: &'a Lines<'a>, local: SystemTime) -> Self {
        Self { lines, local }
    }

    /// The time until an HTTP date of any of the three formats.
    pub(super) fn until_date(self, text: &str) -> Option<Duration> {
        Some(date(text)?.saturating_sub(self.now()))
    }

    /// The time until a reset: seconds from now, seconds or milliseconds of the Unix clock, a duration with units, or a
    /// date of HTTP or of RFC 3339.
    pub(super) fn until_reset(self, text: &str) -> Option<Duration> {
        let Some(number) = seconds(text) else {
            let until = |date: Duration| date.saturating_sub(self.now());
            let dated = || self.until_date(text).or_else(|| rfc3339(text).map(until));
            return duration(text).or_else(dated);
        };
        let unix = match number.as_secs() {
            ..UNIX_SECONDS => return Some(number),
            UNIX_SECONDS..UNIX_MILLIS => number,
            UNIX_MILLIS.. => number / 1000,
        };
        Some(unix.saturating_sub(self.now()))
    }

    /// The time since the Unix epoch, by the response's `Date`, or by the local clock where that is missing or in doubt.
    fn now(self) -> Duration {
        *self.lines.now.get_or_init(|| {
            let dates = self.lines.values(&DATE, date);
            match dates.first() {
                Some(first) if dates.iter().all(|date| date == first) => {
                    first.saturating_add(age(self.lines.headers))
                }
                _ => since_epoch(self.local),
            }
        })
    }
}

/// How long the response has been in caches, as [RFC 9111] has it: the first of several counts.
///
/// [RFC 9111]: https://www.rfc-editor.org/rfc/rfc9111#section-5.1
pub(super) fn age(headers: &HeaderMap) -> Duration {
    let line = headers.get(AGE).and_then(|line| line.to_str().ok());
    let first = line.and_then(|line| line.split(',').next());
    first
        .and_then(|age| seconds(age.trim()))
        .unwrap_or_default()
}

fn date(text: &str) -> Option<Duration> {
    httpdate::parse_http_date(text).ok().map(since_epoch)
}

/// The time since the Unix epoch of a date such as `2023-11-14T22:13:50.5Z`, by [RFC 3339].
///
/// [RFC 3339]: https://www.rfc-editor.org/rfc/rfc3339#section-5.6
fn rfc3339(text: &str) -> Option<Duration> {
    let text = text.to_ascii_uppercase();
    let time = text.find('T')?;
    let (local, zone) = text.split_at(time + text[time..].find(['Z', '+', '-'])?);
    let local = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
    let local = since_epoch(local);
    let (sign, offset) = zone.split_at(1);
    if sign == "Z" {
        return offset.is_empty().then_some(local);
    }
    let (hours, minutes) = offset.split_once(':')?;
    let offset = seconds(hours)?.saturating_mul(3_600) + seconds(minutes)?.saturating_mul(60);
    match sign {
        "-" => local.checked_add(offset),
        _ => local.checked_sub(offset),
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}
