//! The time at the origin, according to its response: [`OriginClock`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::{AGE, DATE};

use super::lines::values;
use super::number::seconds;

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
    headers: &'a HeaderMap,
    local: SystemTime,
}

impl<'a> OriginClock<'a> {
    pub(super) fn new(headers: &'a HeaderMap, local: SystemTime) -> Self {
        Self { headers, local }
    }

    /// The time until an HTTP date of any of the three formats.
    pub(super) fn until_date(self, text: &str) -> Option<Duration> {
        Some(date(text)?.saturating_sub(self.now()))
    }

    /// The time until a reset: seconds from now, seconds or milliseconds of the Unix clock, or a date.
    pub(super) fn until_reset(self, text: &str) -> Option<Duration> {
        let Some(number) = seconds(text) else {
            return self.until_date(text);
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
        let dates = values(self.headers, &DATE, date);
        match dates.first() {
            Some(first) if dates.iter().all(|date| date == first) => {
                first.saturating_add(age(self.headers))
            }
            _ => since_epoch(self.local),
        }
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

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE_1994: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const UNIX_1994: Duration = Duration::from_secs(784_111_777);

    fn clock(headers: &[(&'static str, &'static str)]) -> Duration {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        OriginClock::new(&map, UNIX_EPOCH + Duration::from_secs(5)).now()
    }

    #[test]
    fn the_date_of_the_response_is_now_at_the_origin() {
        assert_eq!(clock(&[("date", DATE_1994)]), UNIX_1994);
        let asctime = ("date", "Sun Nov  6 08:49:37 1994");
        assert_eq!(clock(&[("date", DATE_1994), asctime]), UNIX_1994);
        let aged = UNIX_1994 + Duration::from_secs(60);
        assert_eq!(clock(&[("date", DATE_1994), ("age", "60")]), aged);
    }

    #[test]
    fn a_date_that_is_missing_or_in_doubt_gives_way_to_the_local_clock() {
        let local = Duration::from_secs(5);
        assert_eq!(clock(&[]), local);
        assert_eq!(clock(&[("age", "60")]), local);
        assert_eq!(clock(&[("date", "Sun, 06 Nov 1994")]), local);
        // The day of the week is another one.
        assert_eq!(clock(&[("date", "Mon, 06 Nov 1994 08:49:37 GMT")]), local);
        let other = ("date", "Sun, 06 Nov 1994 08:49:38 GMT");
        assert_eq!(clock(&[("date", DATE_1994), other]), local);
    }

    #[test]
    fn a_clock_before_the_epoch_is_at_the_epoch() {
        let local = UNIX_EPOCH - Duration::from_secs(1);
        let headers = HeaderMap::new();
        let clock = OriginClock::new(&headers, local).now();
        assert_eq!(clock, Duration::ZERO);
    }

    #[test]
    fn resets_are_distinguished_by_their_size() {
        let headers = HeaderMap::new();
        let clock = OriginClock::new(&headers, UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        for (text, millis) in [
            ("30", 30_000),
            ("2.5", 2_500),
            ("999999999.5", 999_999_999_500),
            ("1000000000", 0),
            ("1700000000", 0),
            ("1700000030", 30_000),
            ("1700000030.125", 30_125),
            ("99999999999", 98_299_999_999_000),
            ("100000000000", 0),
            ("1700000030500", 30_500),
            ("1700000030000.5", 30_000),
            ("Tue, 14 Nov 2023 22:13:50 GMT", 30_000),
        ] {
            let reset = clock.until_reset(text).map(|reset| reset.as_millis());
            assert_eq!(reset, Some(millis), "{text}");
        }
        for text in ["", "-30", "soon", "2023-11-14T22:13:50Z"] {
            assert_eq!(clock.until_reset(text), None, "{text}");
        }
    }

    #[test]
    fn the_first_age_counts() {
        for (values, expected) in [
            (&["0"][..], 0),
            (&["60"], 60),
            (&["60, 0"], 60),
            (&["0", "60"], 0),
            (&["old"], 0),
            (&["-1"], 0),
        ] {
            let mut map = HeaderMap::new();
            for value in values {
                map.append(AGE, value.parse().unwrap());
            }
            assert_eq!(age(&map), Duration::from_secs(expected), "{values:?}");
        }
    }
}
