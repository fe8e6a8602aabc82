//! What remains of an upstream's quotas, in whichever form it says so: [`Limit`].

use std::time::Duration;

use http::{HeaderMap, HeaderName};

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
    let names_limit = |name: &HeaderName| {
        let name = name.as_str();
        name.starts_with("ratelimit") || name.starts_with("x-rate")
    };
    if !headers.keys().any(names_limit) {
        return Vec::new();
    }
    structured::read(headers)
        .or_else(|| triple::read(headers, clock).map(|limit| vec![limit]))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::HeaderValue;

    use super::*;

    fn remaining(headers: &HeaderMap) -> Option<u32> {
        let limits = read(headers, OriginClock::new(headers, SystemTime::UNIX_EPOCH));
        limits.first().map(|limit| limit.remaining)
    }

    fn assert_order(forms: &[(&'static str, &'static str, u32)]) {
        let mut headers = HeaderMap::new();
        for (name, value, _) in forms {
            headers.insert(*name, HeaderValue::from_static(value));
            let reset = name.replace("remaining", "reset");
            let reset: HeaderName = reset.parse().unwrap();
            headers
                .entry(reset)
                .or_insert(HeaderValue::from_static("1"));
        }
        for (name, _, expected) in forms {
            assert_eq!(remaining(&headers), Some(*expected), "{name}");
            headers.insert(*name, HeaderValue::from_static("-1"));
        }
        assert_eq!(remaining(&headers), None);
    }

    #[test]
    fn the_newest_form_that_is_well_formed_is_read() {
        let older = [
            ("ratelimit-remaining", "3", 3),
            ("x-ratelimit-remaining", "4", 4),
            ("x-rate-limit-remaining", "5", 5),
        ];
        for newest in [
            ("ratelimit", r#""a";r=1;t=1"#, 1),
            ("ratelimit", "limit=9, remaining=2, reset=1", 2),
        ] {
            assert_order(&[&[newest][..], &older].concat());
        }
    }
}
