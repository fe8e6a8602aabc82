//! Limits in the field `RateLimit`: a List of [draft 11], or a Dictionary of [draft 07].
//!
//! [draft 11]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11
//! [draft 07]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-07

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::visitor::{
    DictionaryVisitor, EntryVisitor, Ignored, InnerListVisitor, ItemVisitor, ListVisitor,
    ParameterVisitor,
};
use sfv::{BareItemFromInput, KeyRef, Parser};

use super::Limit;
use crate::feedback::lines::{Lines, MOST_VALUES};
use crate::quota::{CONCURRENT, REQUESTS};

static RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The members of a List or a Dictionary.
#[derive(Default)]
struct Members<'a>(Vec<Member<'a>>);

#[derive(Default)]
struct Member<'a> {
    key: Option<&'a KeyRef>,
    /// `None` for an inner list.
    item: Option<BareItemFromInput<'a>>,
    parameters: Vec<(&'a KeyRef, BareItemFromInput<'a>)>,
}

/// `None` where the field is missing, empty, or malformed in any part.
pub(super) fn read(lines: &Lines<'_>) -> Option<Vec<Limit>> {
    if !lines.headers.contains_key(&RATE_LIMIT) {
        return None;
    }
    let limits = parse(lines.headers);
    if limits.is_none() {
        lines.is_malformed(&RATE_LIMIT);
    }
    limits
}

fn parse(headers: &HeaderMap) -> Option<Vec<Limit>> {
    let (limits, policies) = (
        text(headers, &RATE_LIMIT),
        text(headers, &RATE_LIMIT_POLICY),
    );
    if let Ok(limits) = Parser::new(&limits).parse_list_with_visitor(Members::default()) {
        let policies = Parser::new(&policies).parse_list_with_visitor(Members::default());
        let mut policies = policies.unwrap_or_default();
        policies.0.truncate(MOST_VALUES);
        return service_limits(&limits, &policies);
    }
    let dictionary = Parser::new(&limits).parse_dictionary_with_visitor(Members::default());
    let dictionary = dictionary.ok()?;
    let remaining = dictionary.natural("remaining")?;
    let reset = dictionary.natural("reset")?;
    Some(vec![limit(REQUESTS, remaining, reset)])
}

fn service_limits(items: &Members<'_>, policies: &Members<'_>) -> Option<Vec<Limit>> {
    if items.0.len() > MOST_VALUES {
        return None;
    }
    let mut limits = Vec::new();
    for item in &items.0 {
        item.item.as_ref()?.as_string()?;
        let remaining = natural(item.parameter("r")?)?;
        let reset = item.parameter("t").map_or(Some(0), natural)?;
        let unit = match unit(item, policies) {
            // The draft's text has the plural, and its registry the singular.
            None | Some("request") => REQUESTS,
            Some(unit) => unit,
        };
        // No reset lifts a limit of requests in progress, which end at any time.
        let reset = if unit == CONCURRENT { 1 } else { reset };
        limits.push(limit(unit, remaining, reset));
    }
    (!items.0.is_empty()).then_some(limits)
}

/// The unit by the first policy that the item is of. Without one it is requests, the draft's default.
fn unit<'a>(item: &Member<'_>, policies: &'a Members<'_>) -> Option<&'a str> {
    let policy = policies.0.iter().find(|policy| is_of(item, policy));
    Some(policy?.parameter("qu")?.as_string()?.as_str())
}

/// Whether they have the same name and, if both state one, the same partition key.
fn is_of(item: &Member<'_>, policy: &Member<'_>) -> bool {
    let partitions = (item.parameter("pk"), policy.parameter("pk"));
    item.item == policy.item && !matches!(partitions, (Some(one), Some(another)) if one != another)
}

fn natural(item: &BareItemFromInput<'_>) -> Option<u64> {
    u64::try_from(i64::from(item.as_integer()?)).ok()
}

fn limit(unit: &str, remaining: u64, reset: u64) -> Limit {
    Limit {
        unit: unit.to_owned().into(),
        remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
        reset: Duration::from_secs(reset),
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    lines.collect::<Vec<_>>().join(&b", "[..])
}

impl<'a> Members<'a> {
    fn add(&mut self, key: Option<&'a KeyRef>) -> &mut Member<'a> {
        self.0.push(Member {
            key,
            ..Member::default()
        });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// The integer of the last member with this key.
    fn natural(&self, key: &str) -> Option<u64> {
        let has_key = |member: &&Member<'_>| member.key.is_some_and(|it| it.as_str() == key);
        natural(self.0.iter().rfind(has_key)?.item.as_ref()?)
    }
}

impl<'a> Member<'a> {
    /// The last parameter with this name.
    fn parameter(&self, name: &str) -> Option<&BareItemFromInput<'a>> {
        let mut parameters = self.parameters.iter();
        let found = parameters.rfind(|(key, _)| key.as_str() == name);
        found.map(|(_, value)| value)
    }
}

impl<'a> ListVisitor<'a> for Members<'a> {
    type Out = Self;
    type Error = Infallible;

    fn entry(&mut self) -> Result<impl EntryVisitor<'a>, Infallible> {
        Ok(self.add(None))
    }

    fn finish(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl<'a> DictionaryVisitor<'a> for Members<'a> {
    type Out = Self;
    type Error = Infallible;

    fn entry(&mut self, key: &'a KeyRef) -> Result<impl EntryVisitor<'a>, Infallible> {
        Ok(self.add(Some(key)))
    }

    fn finish(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl<'a> EntryVisitor<'a> for &mut Member<'a> {
    type Error = Infallible;

    fn item(self) -> Result<impl ItemVisitor<'a>, Infallible> {
        Ok(self)
    }

    fn inner_list(self) -> Result<impl InnerListVisitor<'a>, Infallible> {
        Ok(Ignored)
    }
}

impl<'a> ItemVisitor<'a> for &mut Member<'a> {
    type Out = ();
    type Error = Infallible;

    fn bare_item(
        self,
        item: BareItemFromInput<'a>,
    ) -> Result<impl ParameterVisitor<'a, Out = ()>, Infallible> {
        self.item = Some(item);
        Ok(self)
    }
}

impl<'a> ParameterVisitor<'a> for &mut Member<'a> {
    type Out = ();
    type Error = Infallible;

    fn parameter(
        &mut self,
        key: &'a KeyRef,
        value: BareItemFromInput<'a>,
    ) -> Result<(), Infallible> {
        self.parameters.push((key, value));
        Ok(())
    }

    fn finish(self) -> Result<(), Infallible> {
        Ok(())
    }
}
