//! What remains of an upstream's quotas, in whichever form it says so: [`Limit`].

use std::borrow::Cow;
use std::time::Duration;

use super::lines::Lines;
use super::origin::OriginClock;

mod structured;
mod triple;

/// The rest of one quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) unit: Cow<'static, str>,
    pub(super) remaining: u32,
    /// The time until there is more; zero if it is missing or over.
    pub(super) reset: Duration,
}

/// The limits by the newest form that is there and well-formed, and those with a unit in the name of their headers.
pub(super) fn read(lines: &Lines<'_>, clock: OriginClock<'_>) -> Vec<Limit> {
    let limits = structured::read(lines).or_else(|| triple::read(lines, clock).map(|it| vec![it]));
    let mut limits = limits.unwrap_or_default();
    limits.extend(triple::of_units(lines, clock));
    limits
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn the_newest_form_that_is_well_formed_is_read() {
        for newest in [r#""a";r=2;t=1"#, "limit=9, remaining=2, reset=1"] {
            let forms = [
                ("ratelimit", newest),
                ("ratelimit-remaining", "3"),
                ("x-ratelimit-remaining", "4"),
                ("x-rate-limit-remaining", "5"),
            ];
            let mut headers = HeaderMap::new();
            for reset in ["ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset"] {
                headers.insert(reset, HeaderValue::from_static("1"));
            }
            for (name, value) in forms {
                headers.insert(name, HeaderValue::from_static(value));
            }
            for (expected, (name, _)) in (2..).zip(forms) {
                let lines = Lines::new(&headers);
                let clock = OriginClock::new(&lines, SystemTime::UNIX_EPOCH);
                assert_eq!(read(&lines, clock)[0].remaining, expected, "{name}");
                headers.insert(name, HeaderValue::from_static("-1"));
            }
            let lines = Lines::new(&headers);
            let clock = OriginClock::new(&lines, SystemTime::UNIX_EPOCH);
            assert!(read(&lines, clock).is_empty());
        }
    }
}
