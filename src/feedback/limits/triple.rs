//! Limits with a header for each number, as they were before `RateLimit` held them all.

use http::HeaderMap;

use super::Limit;
use crate::feedback::lines::values;
use crate::feedback::number::{count, seconds};
use crate::feedback::origin::OriginClock;

/// The names of the fields for the requests that remain, for the time until the reset, and for the moment of the reset.
/// The size of the quota does not matter here, so `-Limit` is not among them.
const FAMILIES: [[&str; 3]; 3] = [
    [
        "ratelimit-remaining",
        "ratelimit-reset-after",
        "ratelimit-reset",
    ],
    [
        "x-ratelimit-remaining",
        "x-ratelimit-reset-after",
        "x-ratelimit-reset",
    ],
    [
        "x-rate-limit-remaining",
        "x-rate-limit-reset-after",
        "x-rate-limit-reset",
    ],
];

/// The limit of the first family that states one.
pub(super) fn read(headers: &HeaderMap, clock: OriginClock<'_>) -> Option<Limit> {
    FAMILIES.iter().find_map(|&[remaining, after, at]| {
        let remaining = values(headers, remaining, count).into_iter().min()?;
        let after = values(headers, after, seconds).into_iter().max();
        let reset = after.or_else(|| {
            let resets = values(headers, at, |text| clock.until_reset(text));
            resets.into_iter().max()
        })?;
        Some(Limit { remaining, reset })
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn limit(lines: &[(&'static str, &'static str)]) -> Option<(u32, u64)> {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, value.parse().unwrap());
        }
        let local = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let limit = read(&map, OriginClock::new(&map, local))?;
        Some((limit.remaining, limit.reset.as_secs()))
    }

    const REMAINING: (&str, &str) = ("x-ratelimit-remaining", "7");

    #[test]
    fn a_delay_goes_before_a_moment() {
        let moment = ("x-ratelimit-reset", "1700000030");
        assert_eq!(limit(&[REMAINING, moment]), Some((7, 30)));
        let after = ("x-ratelimit-reset-after", "20");
        assert_eq!(limit(&[REMAINING, moment, after]), Some((7, 20)));
        let malformed = ("x-ratelimit-reset-after", "-20");
        assert_eq!(limit(&[REMAINING, moment, malformed]), Some((7, 30)));
    }

    #[test]
    fn of_several_the_least_and_the_longest_count() {
        let lines = [
            REMAINING,
            ("x-ratelimit-remaining", "6, 8"),
            ("x-ratelimit-reset", "30"),
            ("x-ratelimit-reset", "1700000040, 20"),
        ];
        assert_eq!(limit(&lines), Some((6, 40)));
    }

    #[test]
    fn one_number_alone_says_nothing() {
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[REMAINING]), None);
        assert_eq!(limit(&[("x-ratelimit-reset", "30")]), None);
        assert_eq!(limit(&[REMAINING, ("x-ratelimit-reset", "soon")]), None);
        // Nor are the numbers of two families one limit.
        assert_eq!(limit(&[REMAINING, ("ratelimit-reset", "30")]), None);
    }
}
