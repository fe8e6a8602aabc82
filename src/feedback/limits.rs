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

/// The requests that remain, by families of fields. In place of `remaining`, `reset-after` is the time until the reset, and
/// `reset` its moment. The size of the quota, `limit`, does not matter here.
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
    let limits = structured(lines).or_else(|| of_requests(lines).map(|it| vec![it]));
    let mut limits = limits.unwrap_or_default();
    limits.extend(of_units(lines));
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
        limits.push(limit_of(unit, remaining, reset));
    }
    Some(limits)
}

/// The unit by the first policy that the item is of. Without one it is requests, the draft's default.
fn unit<'a>(of: &Item, policies: &'a [ListEntry]) -> Option<&'a str> {
    let mut policies = policies.iter().take(MOST_VALUES).filter_map(item);
    let policy = policies.find(|policy| is_of(of, policy))?;
    Some(parameter(policy, "qu")?.as_string()?.as_str())
}

/// Returns true if both have the same name and, if both state one, the same partition key.
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

/// The limit of the first family with a header for each number, as they were before `RateLimit` held them all.
fn of_requests(lines: &Lines<'_>) -> Option<Limit> {
    REMAINING.iter().find_map(|remaining| {
        if !lines.headers.contains_key(*remaining) {
            return None;
        }
        let name = |field| remaining.replace("remaining", field);
        let after = lines.values(&name("reset-after"), seconds);
        let after = after.into_iter().max();
        limit(lines, REQUESTS, remaining, &name("reset"), after)
    })
}

/// The limits of the families that have a header for each unit: `x-ratelimit-remaining-tokens` and
/// `anthropic-ratelimit-tokens-remaining`.
fn of_units(lines: &Lines<'_>) -> impl Iterator<Item = Limit> {
    lines.headers.keys().filter_map(move |name| {
        let name = name.as_str();
        let of_anthropic = || {
            name.strip_prefix("anthropic-ratelimit-")?
                .strip_suffix("-remaining")
        };
        let (suffix, reset) = match name.strip_prefix("x-ratelimit-remaining-") {
            Some(suffix) => (suffix, format!("x-ratelimit-reset-{suffix}")),
            None => {
                let unit = of_anthropic()?;
                (unit, format!("anthropic-ratelimit-{unit}-reset"))
            }
        };
        let period = |unit: &&str| suffix.strip_prefix(*unit).unwrap_or("-");
        let unit = UNITS.iter().find(|unit| PERIODS.contains(&period(unit)))?;
        limit(lines, unit, name, &reset, None)
    })
}

/// A limit that is reset after a time, or else at a moment.
fn limit(
    lines: &Lines<'_>,
    unit: &'static str,
    remaining: &str,
    at: &str,
    after: Option<Duration>,
) -> Option<Limit> {
    let remaining = lines.values(remaining, count).into_iter().min()?;
    let until = || {
        let resets = lines.values(at, |text| lines.until_reset(text));
        resets.into_iter().max()
    };
    Some(Limit {
        unit: unit.into(),
        remaining,
        reset: after.or_else(until)?,
    })
}
