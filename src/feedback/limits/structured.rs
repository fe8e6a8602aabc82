//! Limits in the field `RateLimit`: a List of [draft 11], or a Dictionary of [draft 07].
//!
//! [draft 11]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11
//! [draft 07]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-07

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser, key_ref};

use super::Limit;
use crate::feedback::lines::{Lines, MOST_VALUES};
use crate::quota::{CONCURRENT, REQUESTS};

const RATE_LIMIT: &str = "ratelimit";
const RATE_LIMIT_POLICY: &str = "ratelimit-policy";

/// `None` where the field is missing, empty, or malformed in any part.
pub(super) fn read(lines: &Lines<'_>) -> Option<Vec<Limit>> {
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
    Some(vec![limit(
        REQUESTS,
        natural("remaining")?,
        natural("reset")?,
    )])
}

fn service_limits(entries: &[ListEntry], policies: &[ListEntry]) -> Option<Vec<Limit>> {
    if entries.is_empty() || entries.len() > MOST_VALUES {
        return None;
    }
    let mut limits = Vec::new();
    for entry in entries {
        let item = item(entry)?;
        item.bare_item.as_string()?;
        let remaining = natural(parameter(item, "r")?)?;
        let reset = parameter(item, "t").map_or(Some(0), natural)?;
        // The draft's text has the plural, and its registry the singular.
        let unit = match unit(item, policies) {
            None | Some("request") => REQUESTS,
            Some(unit) => unit,
        };
        // No reset lifts a limit of requests in progress, which end at any time.
        let reset = if unit == CONCURRENT { 1 } else { reset };
        limits.push(limit(unit, remaining, reset));
    }
    Some(limits)
}

/// The unit by the first policy that the item is of. Without one it is requests, the draft's default.
fn unit<'a>(of: &Item, policies: &'a [ListEntry]) -> Option<&'a str> {
    let mut policies = policies.iter().take(MOST_VALUES).filter_map(item);
    let policy = policies.find(|policy| is_of(of, policy))?;
    Some(parameter(policy, "qu")?.as_string()?.as_str())
}

/// Whether they have the same name and, if both state one, the same partition key.
fn is_of(item: &Item, policy: &Item) -> bool {
    let partitions = (parameter(item, "pk"), parameter(policy, "pk"));
    item.bare_item == policy.bare_item
        && !matches!(partitions, (Some(one), Some(another)) if one != another)
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

fn limit(unit: &str, remaining: u64, reset: u64) -> Limit {
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
