//! The limits that an upstream announces, in whichever form: [`Limit`].

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser, key_ref};

use super::lines::{Lines, MOST_VALUES};
use super::number::{count, seconds};
use crate::quota::{CONCURRENT, REQUESTS};

const RATE_LIMIT: &str = "ratelimit";
const RATE_LIMIT_POLICY: &str = "ratelimit-policy";

/// The requests that remain, by families of headers with one for each number, the newest first.
const REMAINING: [&str; 3] = [
    "ratelimit-remaining",
    "x-ratelimit-remaining",
    "x-rate-limit-remaining",
];

/// The units in names of headers. A period may follow, such as `tokens-minute`.
const UNITS: [&str; 4] = [REQUESTS, "tokens", "input-tokens", "output-tokens"];
const PERIODS: [&str; 5] = ["", "-second", "-minute", "-hour", "-day"];

/// The rest of one quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) unit: Cow<'static, str>,
    pub(super) remaining: u32,
    /// The time until there is more; zero if it is missing or over.
    pub(super) reset: Duration,
}

/// The limits by the newest form that is there and well-formed, and those with a unit in the name of their headers.
pub(super) fn read(lines: &Lines<'_>) -> Vec<Limit> {
    let of_requests = || {
        let mut families = REMAINING.iter();
        let limit = families.find_map(|name| limit(lines, REQUESTS, name))?;
        Some(vec![limit])
    };
    let mut limits = structured(lines).or_else(of_requests).unwrap_or_default();
    let names = lines.headers.keys();
    limits.extend(names.filter_map(|name| of_unit(lines, name.as_str())));
    limits
}

/// Limits in the field `RateLimit`: a List of [draft 11], or a Dictionary of [draft 07]. `None` where the field is missing,
/// empty, or malformed in any part.
///
/// [draft 11]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11
/// [draft 07]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-07
fn structured(lines: &Lines<'_>) -> Option<Vec<Limit>> {
    if !lines.headers.contains_key(RATE_LIMIT) {
        return None;
    }
    let limits = parse(lines.headers);
    if limits.is_none() {
        lines.malformed(RATE_LIMIT);
    }
    limits
}

fn parse(headers: &HeaderMap) -> Option<Vec<Limit>> {
    let limits = text(headers, RATE_LIMIT);
    if let Ok(limits) = Parser::new(&limits).parse::<List>() {
        let policies = Parser::new(&text(headers, RATE_LIMIT_POLICY)).parse::<List>();
        return service_limits(&limits, &policies.unwrap_or_default());
    }
    let limits = Parser::new(&limits).parse::<Dictionary>().ok()?;
    let natural = |name| natural(&item(limits.get(key_ref(name))?)?.bare_item);
    let (remaining, reset) = (natural("remaining")?, natural("reset")?);
    Some(vec![limit_of(REQUESTS, remaining, reset)])
}

fn service_limits(entries: &[ListEntry], policies: &[ListEntry]) -> Option<Vec<Limit>> {
    if entries.is_empty() || entries.len() > MOST_VALUES {
        return None;
    }
    let limits = entries.iter().map(|entry| {
        let item = item(entry)?;
        item.bare_item.as_string()?;
        let remaining = natural(parameter(item, "r")?)?;
        let reset = parameter(item, "t").map_or(Some(0), natural)?;
        // The draft's text has the plural, and its registry the singular.
        let unit = match unit(&item.bare_item, policies) {
            None | Some("request") => REQUESTS,
            Some(unit) => unit,
        };
        // No reset lifts a limit of requests in progress, which end at any time.
        let reset = if unit == CONCURRENT { 1 } else { reset };
        Some(limit_of(unit, remaining, reset))
    });
    limits.collect()
}

/// The unit by the first policy of this name. Without one it is requests, the draft's default.
fn unit<'a>(name: &BareItem, policies: &'a [ListEntry]) -> Option<&'a str> {
    let mut policies = policies.iter().take(MOST_VALUES).filter_map(item);
    let policy = policies.find(|policy| policy.bare_item == *name)?;
    Some(parameter(policy, "qu")?.as_string()?.as_str())
}

/// `None` for an inner list.
fn item(entry: &ListEntry) -> Option<&Item> {
    match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    }
}

fn parameter<'a>(item: &'a Item, name: &'static str) -> Option<&'a BareItem> {
    item.params.get(key_ref(name))
}

fn natural(item: &BareItem) -> Option<u64> {
    u64::try_from(i64::from(item.as_integer()?)).ok()
}

fn limit_of(unit: &str, remaining: u64, reset: u64) -> Limit {
    Limit {
        unit: unit.to_owned().into(),
        remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
        reset: Duration::from_secs(reset),
    }
}

fn text(headers: &HeaderMap, name: &str) -> Vec<u8> {
    let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    lines.collect::<Vec<_>>().join(&b", "[..])
}

/// The limit of a family that has a header for each unit: `x-ratelimit-remaining-tokens` or
/// `anthropic-ratelimit-tokens-remaining`.
fn of_unit(lines: &Lines<'_>, name: &str) -> Option<Limit> {
    let suffix = match name.strip_prefix("x-ratelimit-remaining-") {
        Some(suffix) => suffix,
        None => name
            .strip_prefix("anthropic-ratelimit-")?
            .strip_suffix("-remaining")?,
    };
    let period = |unit: &&str| suffix.strip_prefix(*unit).unwrap_or("-");
    let unit = UNITS.iter().find(|unit| PERIODS.contains(&period(unit)))?;
    limit(lines, unit, name)
}

/// A limit of which this header says what remains. In place of `remaining`, `reset-after` is the time until the reset, and
/// `reset` its moment. The size of the quota, `limit`, does not matter here.
fn limit(lines: &Lines<'_>, unit: &'static str, name: &str) -> Option<Limit> {
    let remaining = lines.values(name, count).into_iter().min()?;
    let named = |field| name.replace("remaining", field);
    let after = lines.values(&named("reset-after"), seconds).into_iter();
    let until = || {
        let resets = lines.values(&named("reset"), |text| lines.until(text));
        resets.into_iter().max()
    };
    Some(Limit {
        unit: unit.into(),
        remaining,
        reset: after.max().or_else(until)?,
    })
}
