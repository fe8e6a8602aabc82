//! Limits with a header for each number, as they were before `RateLimit` held them all.

use http::{HeaderMap, HeaderName};

use super::Limit;
use crate::feedback::lines::values;
use crate::feedback::number::{count, seconds};
use crate::feedback::origin::OriginClock;

/// The fields for the requests that remain, for the time until the reset, and for its moment. The size of the quota,
/// `-limit`, does not matter here.
static FAMILIES: [[HeaderName; 3]; 3] = [
    fields([
        "ratelimit-remaining",
        "ratelimit-reset-after",
        "ratelimit-reset",
    ]),
    fields([
        "x-ratelimit-remaining",
        "x-ratelimit-reset-after",
        "x-ratelimit-reset",
    ]),
    fields([
        "x-rate-limit-remaining",
        "x-rate-limit-reset-after",
        "x-rate-limit-reset",
    ]),
];

const fn fields([remaining, after, at]: [&'static str; 3]) -> [HeaderName; 3] {
    [
        HeaderName::from_static(remaining),
        HeaderName::from_static(after),
        HeaderName::from_static(at),
    ]
}

/// The limit of the first family that states one.
pub(super) fn read(headers: &HeaderMap, clock: OriginClock<'_>) -> Option<Limit> {
    let mut stated = FAMILIES.iter().filter(|[it, ..]| headers.contains_key(it));
    stated.find_map(|[remaining, after, at]| {
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

    #[test]
    fn the_fewest_and_the_longest_delay_count_and_one_number_alone_does_not() {
        for (lines, expected) in [
            ("remaining=7 reset=1700000030", Some((7, 30))),
            ("remaining=7 reset=1700000030 reset-after=20", Some((7, 20))),
            (
                "remaining=7 reset=1700000030 reset-after=-20",
                Some((7, 30)),
            ),
            (
                "remaining=7 remaining=6,8 reset=30 reset=1700000040,20",
                Some((6, 40)),
            ),
            ("remaining=7", None),
            ("reset=30", None),
            ("remaining=7 reset=soon", None),
        ] {
            let mut headers = HeaderMap::new();
            // The numbers of two families are not one limit.
            headers.append("ratelimit-reset", "30".parse().unwrap());
            for (name, value) in lines.split(' ').filter_map(|line| line.split_once('=')) {
                let name: http::HeaderName = format!("x-ratelimit-{name}").parse().unwrap();
                headers.append(name, value.parse().unwrap());
            }
            let local = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            let limit = read(&headers, OriginClock::new(&headers, local));
            let limit = limit.map(|limit| (limit.remaining, limit.reset.as_secs()));
            assert_eq!(limit, expected, "{lines}");
        }
    }
}
