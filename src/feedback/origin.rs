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
            let clock = OriginClock::new(&headers, UNIX_EPOCH + Duration::from_secs(5));
            assert_eq!(clock.now().as_secs().to_string(), expected.trim(), "{case}");
        }
        let headers = HeaderMap::new();
        let before = OriginClock::new(&headers, UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(before.now(), Duration::ZERO);
    }

    #[test]
    fn resets_are_distinguished_by_their_size() {
        let headers = HeaderMap::new();
        let clock = OriginClock::new(&headers, UNIX_EPOCH + Duration::from_secs(1_700_000_000));
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
        ] {
            let reset = clock.until_reset(text).map(|reset| reset.as_millis());
            assert_eq!(reset, Some(millis), "{text}");
        }
        for text in ["", "-30", "soon", "2023-11-14T22:13:50Z"] {
            assert_eq!(clock.until_reset(text), None, "{text}");
        }
    }
}
