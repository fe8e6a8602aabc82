//! The header fields that inform a client of its limit.
//!
//! `RateLimit-Policy` and `RateLimit` follow [draft-ietf-httpapi-ratelimit-headers-11], whose values are
//! structured fields ([RFC 9651]); `Retry-After` is that of [RFC 9110, section 10.2.3].
//!
//! [draft-ietf-httpapi-ratelimit-headers-11]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/
//! [RFC 9651]: https://www.rfc-editor.org/rfc/rfc9651
//! [RFC 9110, section 10.2.3]: https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3

use std::borrow::Cow;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{ListSerializer, StringRef, key_ref};

use crate::algorithm::Costs;
use crate::policy::Policy;
use crate::quota::{Algorithm, CONCURRENT, Quota, REQUESTS};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_RATE_LIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATE_LIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATE_LIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// What is left of the quotas for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Headroom {
    /// How much more of each unit may be spent, at least.
    pub(super) remaining: Costs,
    /// By when more may, at the latest, if that is known.
    pub(super) more: Option<Duration>,
}

/// Adds `RateLimit-Policy`, and `RateLimit` if the state of the key is known. Both are lists, so they join those of
/// other policies.
pub(super) fn write_rate_limit(
    headers: &mut HeaderMap,
    policy: &Policy,
    headroom: Option<Headroom>,
) {
    let described = policy.header.get_or_init(|| describe(policy));
    headers.append(RATE_LIMIT_POLICY, described.clone());
    if let Some(Headroom { remaining, more }) = headroom {
        let mut list = ListSerializer::new();
        for ((name, unit, limit), remaining) in whole(policy).zip(remaining.0) {
            // A client may well count what is spent as the difference of the two.
            let item = list
                .bare_item(string(&name))
                .parameter(key_ref("r"), remaining.min(limit));
            // It is not known when requests in progress end.
            if let Some(more) = more.filter(|_| unit != CONCURRENT) {
                let _ = item.parameter(key_ref("t"), whole_seconds(more));
            }
        }
        headers.append(RATE_LIMIT, value(list.finish()));
    }
}

/// Writes `X-RateLimit-Limit`, `-Remaining` and `-Reset`. They have room for one policy: fields that are there stay if
/// they leave less.
pub(super) fn write_x_rate_limit(headers: &mut HeaderMap, policy: &Policy, headroom: Headroom) {
    let limit = limits(policy).0[0];
    let remaining = headroom.remaining.0[0].min(limit);
    if let Some(theirs) = headers.get(X_RATE_LIMIT_REMAINING) {
        let theirs = theirs.to_str().ok().and_then(|it| it.parse::<u64>().ok());
        if theirs.is_none_or(|theirs| theirs <= remaining.into()) {
            return;
        }
    }
    headers.insert(X_RATE_LIMIT_LIMIT, limit.into());
    headers.insert(X_RATE_LIMIT_REMAINING, remaining.into());
    // It is not known when requests in progress end.
    match headroom.more.filter(|_| policy.units[0] != CONCURRENT) {
        Some(more) => headers.insert(X_RATE_LIMIT_RESET, whole_seconds(more).into()),
        None => headers.remove(X_RATE_LIMIT_RESET),
    };
}

/// Writes `Retry-After`, unless it is there.
pub(super) fn write_retry_after(headers: &mut HeaderMap, delay: Duration) {
    let seconds = || whole_seconds(delay).into();
    headers.entry(RETRY_AFTER).or_insert_with(seconds);
}

/// The limits of the policy as a whole.
fn limits(policy: &Policy) -> Costs {
    match policy.quotas() {
        [quota] => Costs::from(quota.limit()),
        _ => policy.largest_costs,
    }
}

/// The policy as a whole in each unit: its name, the unit and the limit.
pub(super) fn whole(policy: &Policy) -> impl Iterator<Item = (Cow<'_, str>, &'static str, u32)> {
    let label = policy.label();
    let units = policy.units.iter().zip(limits(policy).0).enumerate();
    units.map(move |(nth, (unit, limit))| match nth {
        0 => (label.into(), *unit, limit),
        _ => (format!("{label}:{unit}").into(), *unit, limit),
    })
}

/// The value of `RateLimit-Policy`: the policy as a whole, and each of several quotas.
fn describe(policy: &Policy) -> HeaderValue {
    let (quotas, window) = match policy.quotas() {
        [quota] => (&[][..], whole_window(quota)),
        quotas => (quotas, None),
    };
    let whole = whole(policy).map(|(name, unit, limit)| (name, unit, limit, window));
    let each = quotas.iter().map(|quota| {
        let name = match policy.name() {
            Some(name) => format!("{name}:{quota}"),
            None => quota.to_string(),
        };
        let window = whole_window(quota);
        (name.into(), quota.unit_name(), quota.limit(), window)
    });
    let mut list = ListSerializer::new();
    for (name, unit, limit, window) in whole.chain(each) {
        let mut item = list.bare_item(string(&name)).parameter(key_ref("q"), limit);
        if unit != REQUESTS {
            item = item.parameter(key_ref("qu"), string(unit));
        }
        if let Some(window) = window {
            let _ = item.parameter(key_ref("w"), window);
        }
    }
    value(list.finish())
}

/// Never less than the duration, and never nothing: a client would come back at once.
fn whole_seconds(duration: Duration) -> u32 {
    let begun = u64::from(duration.subsec_nanos() > 0);
    let seconds = duration.as_secs().saturating_add(begun);
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

/// The window in seconds, if it can be said in whole ones.
fn whole_window(quota: &Quota) -> Option<u32> {
    if matches!(quota.counted_by(), Algorithm::Concurrent { .. }) {
        return None;
    }
    let window = quota.window();
    let seconds = u32::try_from(window.as_secs()).ok()?;
    (seconds > 0 && window.subsec_nanos() == 0).then_some(seconds)
}

fn string(name: &str) -> &StringRef {
    StringRef::from_str(name).expect("names and quotas are printable ASCII")
}

fn value(list: Option<String>) -> HeaderValue {
    let value = list.and_then(|list| HeaderValue::try_from(list).ok());
    value.expect("a list of strings and numbers is printable ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyParts;

    fn policy(name: &str, quotas: &str) -> Policy {
        let mut parts = PolicyParts::of(quotas);
        parts.name = (!name.is_empty()).then(|| name.to_owned());
        parts.build().unwrap()
    }

    fn headroom(remaining: u32, millis: u64) -> Headroom {
        Headroom {
            remaining: remaining.into(),
            more: Some(Duration::from_millis(millis)),
        }
    }

    fn values(headers: &HeaderMap, name: &str) -> String {
        let values = headers.get_all(name).iter();
        let values: Vec<_> = values.map(|value| value.to_str().unwrap()).collect();
        values.join(" ")
    }

    #[test]
    fn a_policy_is_described_by_its_name_and_its_quotas() {
        for (name, quotas, expected) in [
            ("", "10/s", r#""10/s";q=10;w=1"#),
            ("api", "5_000/h", r#""api";q=5000;w=3600"#),
            (r#"a"b\c"#, "600/1m30s", r#""a\"b\\c";q=600;w=90"#),
            ("a", "100/m gcra burst=20", r#""a";q=100;w=60"#),
            ("", "1/s gcra burst=2", r#""1/s-gcra-burst=2";q=1;w=1"#),
            // The field has whole seconds only.
            ("", "5/100ms", r#""5/100ms";q=5"#),
            (
                "api",
                "10/s + 5_000/h",
                r#""api";q=10, "api:10/s";q=10;w=1, "api:5000/h";q=5000;w=3600"#,
            ),
            ("a", "9/s unit=bytes", r#""a";q=9;qu="bytes";w=1"#),
            ("a", "8 concurrent", r#""a";q=8;qu="concurrent-requests""#),
            (
                "a",
                "10/s + 500/h unit=tokens",
                r#""a";q=10, "a:tokens";q=500;qu="tokens", "a:10/s";q=10;w=1, "a:500/h unit=tokens";q=500;qu="tokens";w=3600"#,
            ),
        ] {
            assert_eq!(describe(&policy(name, quotas)), expected);
        }
    }

    #[test]
    fn limits_are_added_to_those_that_are_there() {
        let mut headers = HeaderMap::new();
        let client = policy("client", "10/s + 5_000/h");
        write_rate_limit(&mut headers, &client, Some(headroom(3, 1_001)));
        let route = policy("route", "1/s gcra burst=20");
        write_rate_limit(&mut headers, &route, Some(headroom(19, 1)));
        let units = Headroom {
            remaining: Costs([4, 50, 0, 0]),
            more: None,
        };
        let tokens = policy("a", "9/s + 99/m unit=tokens");
        write_rate_limit(&mut headers, &tokens, Some(units));
        let places = policy("p", "8 concurrent");
        write_rate_limit(&mut headers, &places, Some(headroom(3, 1)));
        // If it is unknown what is left, the field is missing.
        write_rate_limit(&mut headers, &policy("other", "10/s"), None);
        let expected = r#""client";r=3;t=2 "route";r=1;t=1 "a";r=4, "a:tokens";r=50 "p";r=3"#;
        assert_eq!(values(&headers, "ratelimit"), expected);
        let policies = values(&headers, "ratelimit-policy");
        assert!(policies.contains(r#" "route";q=1;w=1 "a";q=9, "#));
        assert!(policies.ends_with(r#" "other";q=10;w=1"#));
    }

    #[test]
    fn seconds_are_rounded_up_and_an_existing_retry_after_stays() {
        for (nanos, expected) in [(0, 1), (1_000_000_000, 1), (1_000_000_001, 2)] {
            assert_eq!(whole_seconds(Duration::from_nanos(nanos)), expected);
        }
        let mut headers = HeaderMap::new();
        write_retry_after(&mut headers, Duration::MAX);
        write_retry_after(&mut headers, Duration::from_secs(9));
        assert_eq!(values(&headers, "retry-after"), u32::MAX.to_string());
    }

    #[test]
    fn the_older_fields_hold_the_limit_that_leaves_less() {
        let ten = (policy("", "10/s gcra burst=20"), headroom(15, 999));
        let hundred = (policy("", "100/m"), headroom(40, 60_000));
        for limits in [[&ten, &hundred], [&hundred, &ten]] {
            let mut headers = HeaderMap::new();
            for (policy, headroom) in limits {
                write_x_rate_limit(&mut headers, policy, *headroom);
            }
            assert_eq!(values(&headers, "x-ratelimit-limit"), "10");
            assert_eq!(values(&headers, "x-ratelimit-remaining"), "10");
            assert_eq!(values(&headers, "x-ratelimit-reset"), "1");
        }
        let mut headers = HeaderMap::new();
        write_x_rate_limit(&mut headers, &policy("", "8 concurrent"), headroom(3, 0));
        assert_eq!(values(&headers, "x-ratelimit-remaining"), "3");
        assert!(!headers.contains_key("x-ratelimit-reset"));
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining", HeaderValue::from_static("many"));
        write_x_rate_limit(&mut headers, &ten.0, ten.1);
        assert_eq!(values(&headers, "x-ratelimit-remaining"), "many");
        assert_eq!(headers.len(), 1);
    }
}
