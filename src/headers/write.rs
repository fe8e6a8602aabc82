//! Writing the header fields: [`Fields`] of a policy, and the [`Standing`] of a key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use http::header::{Entry, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};
use sfv::{KeyRef, ListSerializer, StringRef};

use super::{
    RATE_LIMIT, RATE_LIMIT_POLICY, X_RATE_LIMIT_LIMIT, X_RATE_LIMIT_REMAINING, X_RATE_LIMIT_RESET,
    policy_name,
};
use crate::policy::Policy;
use crate::quota::Quota;

/// How a key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// How many more requests of cost 1 may depart, at least.
    pub(crate) remaining: u32,
    /// By when more may, at the latest, if that is known.
    pub(crate) more: Option<Duration>,
}

/// What the fields say of a policy, whoever asks.
#[derive(Debug)]
pub(crate) struct Fields {
    name: String,
    limit: u32,
    policy: HeaderValue,
}

/// The fields of the policies that were asked for: a limiter has few, and hardly ever others.
#[derive(Default)]
pub(crate) struct KnownFields(ArcSwap<HashMap<usize, Known>>);

type Known = Arc<(Arc<Policy>, Fields)>;

impl KnownFields {
    pub(crate) fn of(&self, policy: &Arc<Policy>) -> Known {
        // Nothing else is there while it is known.
        let place = Arc::as_ptr(policy).addr();
        if let Some(known) = self.0.load().get(&place) {
            return known.clone();
        }
        let new = Arc::new((policy.clone(), Fields::new(policy)));
        self.0.rcu(|known| {
            let mut known = HashMap::clone(known);
            // Those that nobody else has are not asked for any more.
            known.retain(|_, known| Arc::strong_count(&known.0) > 1);
            known.insert(place, new.clone());
            known
        });
        new
    }
}

impl fmt::Debug for KnownFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KnownFields")
    }
}

impl Fields {
    pub(crate) fn new(policy: &Policy) -> Self {
        let name = policy_name(policy);
        let mut list = ListSerializer::new();
        let limit = match policy.quotas() {
            [quota] => {
                item(&mut list, name, quota.limit(), whole_window(quota));
                quota.limit()
            }
            quotas => {
                let limit = policy.largest_cost();
                item(&mut list, name, limit, None);
                for quota in quotas {
                    let text = quota.to_string().replace('_', "");
                    let own = match policy.name() {
                        Some(name) => format!("{name}:{text}"),
                        None => text,
                    };
                    item(&mut list, &own, quota.limit(), whole_window(quota));
                }
                limit
            }
        };
        Self {
            policy: value(list.finish()),
            name: name.to_owned(),
            limit,
        }
    }

    /// Adds `RateLimit-Policy`, and `RateLimit` where it is known how the key stands. Both are lists, so
    /// they join those of other policies.
    pub(crate) fn write_rate_limit(&self, headers: &mut HeaderMap, standing: Option<Standing>) {
        headers.append(RATE_LIMIT_POLICY, self.policy.clone());
        if let Some(Standing { remaining, more }) = standing {
            let mut list = ListSerializer::new();
            // A client may well count what is spent as the difference of the two.
            let item = list
                .bare_item(string(&self.name))
                .parameter(key("r"), remaining.min(self.limit));
            if let Some(more) = more {
                let _ = item.parameter(key("t"), whole_seconds(more));
            }
            headers.append(RATE_LIMIT, value(list.finish()));
        }
    }

    /// Writes `X-RateLimit-Limit`, `-Remaining` and `-Reset`. They have room for one policy: if they
    /// are there, those stay that leave less.
    pub(crate) fn write_x_rate_limit(&self, headers: &mut HeaderMap, standing: Standing) {
        let remaining = standing.remaining.min(self.limit);
        if let Some(theirs) = headers.get(X_RATE_LIMIT_REMAINING) {
            let theirs = theirs.to_str().ok().and_then(|it| it.parse::<u64>().ok());
            if theirs.is_none_or(|theirs| theirs <= remaining.into()) {
                return;
            }
        }
        headers.insert(X_RATE_LIMIT_LIMIT, self.limit.into());
        headers.insert(X_RATE_LIMIT_REMAINING, remaining.into());
        match standing.more {
            Some(more) => headers.insert(X_RATE_LIMIT_RESET, whole_seconds(more).into()),
            None => headers.remove(X_RATE_LIMIT_RESET),
        };
    }
}

/// Writes `Retry-After`, unless it is there.
pub(crate) fn write_retry_after(headers: &mut HeaderMap, delay: Duration) {
    if let Entry::Vacant(entry) = headers.entry(RETRY_AFTER) {
        entry.insert(whole_seconds(delay).into());
    }
}

/// Never less than the duration, and never nothing: a client would come back at once.
fn whole_seconds(duration: Duration) -> u32 {
    let begun = u64::from(duration.subsec_nanos() > 0);
    let seconds = duration.as_secs().saturating_add(begun);
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

/// The window in seconds, if it can be said in whole ones.
fn whole_window(quota: &Quota) -> Option<u32> {
    let window = quota.window();
    let seconds = u32::try_from(window.as_secs()).ok()?;
    (seconds > 0 && window.subsec_nanos() == 0).then_some(seconds)
}

fn item(list: &mut ListSerializer<String>, name: &str, quota: u32, window: Option<u32>) {
    let item = list.bare_item(string(name)).parameter(key("q"), quota);
    if let Some(window) = window {
        let _ = item.parameter(key("w"), window);
    }
}

fn string(name: &str) -> &StringRef {
    StringRef::from_str(name).expect("names and quotas are printable ASCII")
}

fn key(name: &str) -> &KeyRef {
    KeyRef::from_str(name).expect("a lower-case letter is a key")
}

fn value(list: Option<String>) -> HeaderValue {
    let value = list.and_then(|list| HeaderValue::try_from(list).ok());
    value.expect("a list of strings and numbers is printable ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyParts;

    fn policy(name: Option<&str>, quotas: &[&str]) -> Policy {
        let quotas = quotas.iter().map(|quota| quota.parse().unwrap());
        let parts = PolicyParts {
            name: name.map(str::to_owned),
            quotas: quotas.collect(),
            ..PolicyParts::default()
        };
        parts.build().unwrap()
    }

    fn rate_limit_policy(name: Option<&str>, quotas: &[&str]) -> String {
        let fields = Fields::new(&policy(name, quotas));
        fields.policy.to_str().unwrap().to_owned()
    }

    fn standing(remaining: u32, millis: u64) -> Standing {
        Standing {
            remaining,
            more: Some(Duration::from_millis(millis)),
        }
    }

    fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
        let values = headers.get_all(name).iter();
        values
            .map(|value| value.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_lone_quota_is_the_policy() {
        for (name, quota, expected) in [
            (None, "10/s", r#""10/s";q=10;w=1"#),
            (Some("api"), "5_000/h", r#""api";q=5000;w=3600"#),
            (Some(r#"a"b\c"#), "600/1m30s", r#""a\"b\\c";q=600;w=90"#),
            (
                None,
                "100/m gcra burst=20",
                r#""100/m-gcra-burst=20";q=100;w=60"#,
            ),
        ] {
            assert_eq!(rate_limit_policy(name, &[quota]), expected);
        }
    }

    #[test]
    fn a_window_of_no_whole_seconds_is_left_out() {
        assert_eq!(rate_limit_policy(None, &["5/100ms"]), r#""5/100ms";q=5"#);
        let expected = r#""5/1s500ms";q=5"#;
        assert_eq!(rate_limit_policy(None, &["5/1s500ms"]), expected);
    }

    #[test]
    fn quotas_that_hold_jointly_are_a_policy_each_beside_the_whole() {
        let quotas = ["10/s", "5_000/h"];
        let expected = r#""10/s+5000/h";q=10, "10/s";q=10;w=1, "5000/h";q=5000;w=3600"#;
        assert_eq!(rate_limit_policy(None, &quotas), expected);
        let expected = r#""api";q=10, "api:10/s";q=10;w=1, "api:5000/h";q=5000;w=3600"#;
        assert_eq!(rate_limit_policy(Some("api"), &quotas), expected);
    }

    #[test]
    fn the_limit_names_the_policy_as_a_whole() {
        let mut headers = HeaderMap::new();
        let fields = Fields::new(&policy(Some("api"), &["10/s", "5_000/h"]));
        fields.write_rate_limit(&mut headers, Some(standing(3, 1_001)));
        assert_eq!(values(&headers, "ratelimit"), [r#""api";r=3;t=2"#]);
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let mut headers = HeaderMap::new();
        Fields::new(&policy(None, &["10/s"])).write_rate_limit(&mut headers, None);
        assert!(values(&headers, "ratelimit").is_empty());
        assert_eq!(values(&headers, "ratelimit-policy"), [r#""10/s";q=10;w=1"#]);
    }

    #[test]
    fn no_more_remains_than_the_quota_that_is_named() {
        let mut headers = HeaderMap::new();
        let fields = Fields::new(&policy(None, &["1/s gcra burst=20"]));
        fields.write_rate_limit(&mut headers, Some(standing(19, 1)));
        fields.write_x_rate_limit(&mut headers, standing(19, 1));
        assert_eq!(
            values(&headers, "ratelimit"),
            [r#""1/s-gcra-burst=20";r=1;t=1"#]
        );
        assert_eq!(values(&headers, "x-ratelimit-remaining"), ["1"]);
    }

    #[test]
    fn lists_join_those_that_are_there() {
        let mut headers = HeaderMap::new();
        for (name, remaining) in [("route", 3), ("client", 7)] {
            let fields = Fields::new(&policy(Some(name), &["10/s"]));
            fields.write_rate_limit(&mut headers, Some(standing(remaining, 1_000)));
        }
        let expected = [r#""route";r=3;t=1"#, r#""client";r=7;t=1"#];
        assert_eq!(values(&headers, "ratelimit"), expected);
        assert_eq!(values(&headers, "ratelimit-policy").len(), 2);
    }

    #[test]
    fn the_older_fields_tell_of_whatever_leaves_less() {
        let ten = Fields::new(&policy(None, &["10/s"]));
        let hundred = Fields::new(&policy(None, &["100/m"]));
        for (inner, outer) in [
            ((&ten, standing(3, 1_000)), (&hundred, standing(40, 60_000))),
            ((&hundred, standing(40, 60_000)), (&ten, standing(3, 1_000))),
        ] {
            let mut headers = HeaderMap::new();
            inner.0.write_x_rate_limit(&mut headers, inner.1);
            outer.0.write_x_rate_limit(&mut headers, outer.1);
            assert_eq!(values(&headers, "x-ratelimit-limit"), ["10"]);
            assert_eq!(values(&headers, "x-ratelimit-remaining"), ["3"]);
            assert_eq!(values(&headers, "x-ratelimit-reset"), ["1"]);
        }
    }

    #[test]
    fn older_fields_of_another_kind_are_left_alone() {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining", HeaderValue::from_static("many"));
        let fields = Fields::new(&policy(None, &["10/s"]));
        fields.write_x_rate_limit(&mut headers, standing(3, 1_000));
        assert_eq!(values(&headers, "x-ratelimit-remaining"), ["many"]);
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn seconds_are_rounded_up_and_never_none() {
        for (nanos, expected) in [
            (0, 1),
            (1, 1),
            (999_999_999, 1),
            (1_000_000_000, 1),
            (1_000_000_001, 2),
            (2_500_000_000, 3),
        ] {
            assert_eq!(whole_seconds(Duration::from_nanos(nanos)), expected);
        }
        assert_eq!(whole_seconds(Duration::MAX), u32::MAX);
    }

    #[test]
    fn a_retry_after_that_is_there_stays() {
        let mut headers = HeaderMap::new();
        write_retry_after(&mut headers, Duration::from_millis(1_500));
        write_retry_after(&mut headers, Duration::from_secs(9));
        assert_eq!(values(&headers, "retry-after"), ["2"]);
    }

    #[test]
    fn fields_are_made_once_for_a_policy() {
        let (one, other) = (
            Arc::new(policy(None, &["10/s"])),
            Arc::new(policy(None, &["20/s"])),
        );
        let known = KnownFields::default();
        assert!(Arc::ptr_eq(&known.of(&one), &known.of(&one)));
        let first = known.of(&one);
        assert_eq!(first.1.name, "10/s");
        assert_eq!(known.of(&other).1.name, "20/s");
        assert!(
            Arc::ptr_eq(&known.of(&one), &first),
            "nor once more for each in turn"
        );
        drop(other);
        known.of(&Arc::new(policy(None, &["30/s"])));
        assert_eq!(known.0.load().len(), 2, "what nobody uses is forgotten");
    }
}
