//! Limits with a header for each number, as they were before `RateLimit` held them all.

use http::HeaderMap;

use super::Limit;
use crate::feedback::lines::values;
use crate::feedback::number::{count, seconds};
use crate::feedback::origin::OriginClock;

/// How the names of the fields begin. They end in `-remaining` for the requests that remain, in `-reset-after` for the
/// time until the reset, and in `-reset` for its moment. The size of the quota, `-limit`, does not matter here.
const FAMILIES: [&str; 3] = ["ratelimit", "x-ratelimit", "x-rate-limit"];

/// The limit of the first family that states one.
pub(super) fn read(headers: &HeaderMap, clock: OriginClock<'_>) -> Option<Limit> {
    FAMILIES.iter().find_map(|family| {
        let remaining = values(headers, format!("{family}-remaining"), count);
        let remaining = remaining.into_iter().min()?;
        let after = values(headers, format!("{family}-reset-after"), seconds);
        let reset = after.into_iter().max().or_else(|| {
            let at = format!("{family}-reset");
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
