//! What remains of an upstream's quotas, in whichever form it says so: [`Limit`].

use std::time::Duration;

use http::HeaderMap;

use super::origin::OriginClock;

mod structured;
mod triple;

/// What remains of one quota. Those that are not counted in requests are here only if nothing remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) remaining: u32,
    /// The time until there is more; zero if it is missing or over.
    pub(super) reset: Duration,
}

/// The limits by the newest form that is there and well-formed.
pub(super) fn read(headers: &HeaderMap, clock: OriginClock<'_>) -> Vec<Limit> {
    structured::read(headers)
        .or_else(|| triple::read(headers, clock).map(|limit| vec![limit]))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::HeaderValue;

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
                let clock = OriginClock::new(&headers, SystemTime::UNIX_EPOCH);
                assert_eq!(read(&headers, clock)[0].remaining, expected, "{name}");
                headers.insert(name, HeaderValue::from_static("-1"));
            }
            let clock = OriginClock::new(&headers, SystemTime::UNIX_EPOCH);
            assert!(read(&headers, clock).is_empty());
        }
    }
}
