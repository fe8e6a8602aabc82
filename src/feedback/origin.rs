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
    let (date, rest) = text.split_once(['T', 't'])?;
    let (time, zone) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    let [year, month, day] = parts(date, '-')?;
    let [hour, minute, second] = parts(time, ':')?;
    let is_whole = [year, month, day, hour, minute]
        .iter()
        .all(|it| it.subsec_nanos() == 0);
    let [year, month, day] = [year, month, day].map(|it| it.as_secs());
    if !is_whole || year > 9_999 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // The year begins in March, so that a leap day is its last.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year.checked_sub(1)?, month + 9)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let days = days.checked_sub(DAYS_TO_EPOCH)?;
    let local = Duration::from_secs(days * 86_400) + hour * 3_600 + minute * 60 + second;
    match zone.split_at(1) {
        ("Z" | "z", "") => Some(local),
        (sign, offset) => {
            let [hours, minutes] = parts(offset, ':')?;
            let offset = hours * 3_600 + minutes * 60;
            if sign == "-" {
                Some(local + offset)
            } else {
                local.checked_sub(offset)
            }
        }
    }
}

/// The days from the first of March of the year 0, counted as day 1, to the Unix epoch.
const DAYS_TO_EPOCH: u64 = 719_469;

/// Numbers of at most four digits before the point.
fn parts<const N: usize>(text: &str, separator: char) -> Option<[Duration; N]> {
    let parts = text
        .split(separator)
        .map(|part| seconds(part).filter(|it| it.as_secs() < 10_000));
    parts.collect::<Option<Vec<_>>>()?.try_into().ok()
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_the_response_is_now_at_the_origin_unless_it_is_in_doubt() {
        for case in "
            784111777 => date: Sun, 06 Nov 1994 08:49:37 GMT
            784111777 => date: Sun, 06 Nov 1994 08:49:37 GMT | date: Sun Nov  6 08:49:37 1994
            784111837 => date: Sun, 06 Nov 1994 08:49:37 GMT | age: 60
            784111837 => date: Sun, 06 Nov 1994 08:49:37 GMT | age: 60, 0
            784111777 => date: Sun, 06 Nov 1994 08:49:37 GMT | age: 0 | age: 60
            784111777 => date: Sun, 06 Nov 1994 08:49:37 GMT | age: old
            # Otherwise it is the local time, 5.
            5 => age: 60
            5 => date: Sun, 06 Nov 1994
            5 => date: Mon, 06 Nov 1994 08:49:37 GMT
            5 => date: Sun, 06 Nov 1994 08:49:37 GMT | date: Sun, 06 Nov 1994 08:49:38 GMT
        "
        .lines()
        {
            let Some((expected, lines)) = case.split_once(" => ") else {
                continue;
            };
            let mut headers = HeaderMap::new();
            for (name, value) in lines.split(" | ").filter_map(|line| line.split_once(": ")) {
                let name: http::HeaderName = name.parse().unwrap();
                headers.append(name, value.parse().unwrap());
            }
            let lines = Lines::new(&headers);
            let clock = OriginClock::new(&lines, UNIX_EPOCH + Duration::from_secs(5));
            assert_eq!(clock.now().as_secs().to_string(), expected.trim(), "{case}");
        }
        let (headers, lines);
        headers = HeaderMap::new();
        lines = Lines::new(&headers);
        let before = OriginClock::new(&lines, UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(before.now(), Duration::ZERO);
    }

    #[test]
    fn resets_are_distinguished_by_their_size() {
        let headers = HeaderMap::new();
        let lines = Lines::new(&headers);
        let clock = OriginClock::new(&lines, UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        for (text, millis) in [
            ("2.5", 2_500),
            ("999999999.5", 999_999_999_500),
            ("1000000000", 0),
            ("1700000030.125", 30_125),
            ("99999999999", 98_299_999_999_000),
            ("100000000000", 0),
            ("1700000030500", 30_500),
            ("1700000030000.5", 30_000),
            ("Tue, 14 Nov 2023 22:13:50 GMT", 30_000),
            ("6m0.5s", 360_500),
            ("2023-11-14T22:13:50Z", 30_000),
            ("2023-11-14t22:13:50.125z", 30_125),
            ("2023-11-15T00:13:50+02:00", 30_000),
            ("2023-11-14T19:43:50-02:30", 30_000),
            ("2024-02-29T22:13:20Z", 107 * 86_400_000),
            ("2024-03-01T22:13:20Z", 108 * 86_400_000),
            ("1994-11-06T08:49:37Z", 0),
        ] {
            let reset = clock.until_reset(text).map(|reset| reset.as_millis());
            assert_eq!(reset, Some(millis), "{text}");
        }
        for text in [
            "",
            "-30",
            "soon",
            "2023-11-14",
            "2023-11-14T22:13:50",
            "2023-11-14T22:13Z",
            "2023-13-14T22:13:50Z",
            "2023-11-32T22:13:50Z",
            "2023-11-14T22.5:13:50Z",
            "2023-11-14T22:13:50+02",
            "2023-11-14T22:13:50Zx",
            "12023-11-14T22:13:50Z",
        ] {
            assert_eq!(clock.until_reset(text), None, "{text}");
        }
    }
}
