//! Limits with a header for each number, as they were before `RateLimit` held them all.

use http::{HeaderMap, HeaderName};

use super::Limit;
use crate::feedback::lines::values;
use crate::feedback::number::{count, seconds};
use crate::feedback::origin::OriginClock;

/// The names of one family. How large the quota is does not matter here, so `-Limit` is not among them.
struct Family {
    remaining: HeaderName,
    reset_after: HeaderName,
    reset: HeaderName,
}

impl Family {
    /// Both what remains and until when; the least and the longest where there are several.
    fn read(&self, headers: &HeaderMap, clock: OriginClock<'_>) -> Option<Limit> {
        let remaining = values(headers, &self.remaining, count).into_iter().min()?;
        // A delay needs no clock, so it comes first.
        let after = values(headers, &self.reset_after, seconds);
        let reset = after.into_iter().max().or_else(|| {
            let resets = values(headers, &self.reset, |text| clock.until_reset(text));
            resets.into_iter().max()
        })?;
        Some(Limit { remaining, reset })
    }
}

static FAMILIES: [Family; 3] = [
    Family {
        remaining: HeaderName::from_static("ratelimit-remaining"),
        reset_after: HeaderName::from_static("ratelimit-reset-after"),
        reset: HeaderName::from_static("ratelimit-reset"),
    },
    Family {
        remaining: HeaderName::from_static("x-ratelimit-remaining"),
        reset_after: HeaderName::from_static("x-ratelimit-reset-after"),
        reset: HeaderName::from_static("x-ratelimit-reset"),
    },
    Family {
        remaining: HeaderName::from_static("x-rate-limit-remaining"),
        reset_after: HeaderName::from_static("x-rate-limit-reset-after"),
        reset: HeaderName::from_static("x-rate-limit-reset"),
    },
];

pub(super) fn read(headers: &HeaderMap, clock: OriginClock<'_>) -> Option<Limit> {
    let mut families = FAMILIES.iter();
    families.find_map(|family| family.read(headers, clock))
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
