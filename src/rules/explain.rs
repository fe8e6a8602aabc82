//! Why a request falls under a rule: [`Explanation`].

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::conditions::{Condition, Conditions, Missed};
use super::host::{HostPattern, Seen};
use super::table::{Entry, Rules};
use crate::key::{Key, RequestHead, Spelling};
use crate::policy::Policy;

/// Which rule a request falls under, and why none of those before; by [`Rules::explain`].
///
/// It is shown as one line for each rule that was looked at.
#[derive(Debug, Clone)]
pub struct Explanation {
    rules: Rules,
    place: usize,
    misses: Vec<Miss>,
    key: Option<Result<Key, Cow<'static, str>>>,
}

/// A rule that a request does not fall under, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    place: usize,
    rule: Option<Arc<str>>,
    condition: Condition,
    reason: String,
}

impl Rules {
    /// Says which rule a request falls under, and of each before it the first condition that the request does not
    /// meet: of host, method, path and headers, in this order.
    ///
    /// ```
    /// use http::Method;
    /// use tower_throttle::Quota;
    /// use tower_throttle::rules::{Condition, Rule, Rules};
    ///
    /// let rules = Rules::new([
    ///     Rule::named("search").method(Method::GET).path("/search").quota(Quota::per_minute(30)),
    ///     Rule::named("others").quota(Quota::per_second(10)),
    /// ])?;
    ///
    /// let request = http::Request::post("https://api.example.com/search").body(()).unwrap();
    /// let explanation = rules.explain(&request);
    /// assert_eq!(explanation.rule(), Some("others"));
    /// assert_eq!(*explanation.misses()[0].condition(), Condition::Method);
    /// assert_eq!(
    ///     explanation.to_string(),
    ///     "rules[0] `search`: the method is POST, not GET\n\
    ///      rules[1] `others`: 10/s for the key \"api.example.com\"",
    /// );
    /// # Ok::<_, tower_throttle::rules::RulesError>(())
    /// ```
    #[must_use]
    pub fn explain<R: RequestHead>(&self, request: &R) -> Explanation {
        let mut spelling = Spelling::new();
        let host = Seen::of(request, &mut spelling);
        let mut misses = Vec::new();
        for (place, entry) in self.entries().iter().enumerate() {
            let route = match entry.conditions.check(request, host) {
                Ok(route) => route,
                Err(missed) => {
                    misses.push(Miss::new(place, entry, missed, request, host));
                    continue;
                }
            };
            let limit = entry.limit.as_ref();
            return Explanation {
                rules: self.clone(),
                place,
                misses,
                key: limit.map(|limit| limit.key.extract(request, route)),
            };
        }
        unreachable!("the last rule matches every request")
    }
}

impl Explanation {
    /// The place of the rule in the table, counted from 0.
    #[must_use]
    pub fn place(&self) -> usize {
        self.place
    }

    /// The name of the rule, if it has one: all have that limit.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        self.entry().name.as_deref()
    }

    /// Whether the request is not limited.
    #[must_use]
    pub fn is_exempt(&self) -> bool {
        self.entry().limit.is_none()
    }

    /// The policy that holds for the request; `None` if it is exempt.
    #[must_use]
    pub fn policy(&self) -> Option<&Arc<Policy>> {
        self.entry().limit.as_ref().map(|limit| &limit.plan.policy)
    }

    /// Whose quota the request spends; `None` if it is exempt, or [has no key](Self::refusal).
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()?.as_ref().ok()
    }

    /// Why the request is refused, as it has no key, if so.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.key.as_ref()?.as_ref().err().map(Cow::as_ref)
    }

    /// What the request costs; `None` if it is exempt.
    #[must_use]
    pub fn cost(&self) -> Option<u32> {
        self.entry().limit.as_ref().map(|limit| limit.cost)
    }

    /// Every rule before this one, in order, and why the request does not fall under it.
    #[must_use]
    pub fn misses(&self) -> &[Miss] {
        &self.misses
    }

    fn entry(&self) -> &Entry {
        &self.rules.entries()[self.place]
    }
}

impl Miss {
    fn new<R: RequestHead>(
        place: usize,
        entry: &Entry,
        missed: Missed<'_>,
        request: &R,
        host: Option<Seen<'_>>,
    ) -> Self {
        Self {
            place,
            rule: entry.name.clone(),
            reason: reason(&entry.conditions, missed, request, host),
            condition: missed.into(),
        }
    }

    /// The place of the rule in the table, counted from 0.
    #[must_use]
    pub fn place(&self) -> usize {
        self.place
    }

    /// The name of the rule, if it has one.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The first condition that the request does not meet.
    #[must_use]
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// The same in words, such as "the method is POST, not GET". Of headers, it tells what the rule wants and not
    /// what the request says, which may be a secret.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

fn reason<R: RequestHead>(
    conditions: &Conditions,
    missed: Missed<'_>,
    request: &R,
    host: Option<Seen<'_>>,
) -> String {
    match missed {
        Missed::Host => {
            let hosts = alternatives(conditions.hosts.iter().map(HostPattern::to_string));
            match host {
                Some(host) => format!("the host is {host}, not {hosts}"),
                None => format!("the request has no host, such as {hosts}"),
            }
        }
        Missed::Method => {
            let methods = alternatives(conditions.methods.iter().map(ToString::to_string));
            format!("the method is {}, not {methods}", request.method())
        }
        Missed::Path => {
            let templates = conditions.paths.iter().flat_map(|paths| paths.templates());
            let paths = alternatives(templates.map(|template| template.key.to_string()));
            format!("the path {} does not match {paths}", request.path())
        }
        Missed::Header(header) => format!("the header is not as it has to be: {header}"),
    }
}

fn alternatives(all: impl Iterator<Item = String>) -> String {
    all.collect::<Vec<_>>().join(" or ")
}

/// How a rule is called.
pub(super) struct Called<'a> {
    pub(super) place: usize,
    pub(super) name: Option<&'a str>,
}

impl fmt::Display for Called<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rules[{}]", self.place)?;
        match self.name {
            Some(name) => write!(f, " `{name}`"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let called = Called {
            place: self.place,
            name: self.rule(),
        };
        write!(f, "{called}: {}", self.reason)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for miss in &self.misses {
            writeln!(f, "{miss}")?;
        }
        let called = Called {
            place: self.place,
            name: self.rule(),
        };
        write!(f, "{called}: ")?;
        let Some(policy) = self.policy() else {
            return f.write_str("exempt");
        };
        if let Some(refusal) = self.refusal() {
            return write!(f, "refused, as {refusal}");
        }
        for (index, quota) in policy.quotas().iter().enumerate() {
            let and = if index > 0 { " and " } else { "" };
            write!(f, "{and}{quota}")?;
        }
        if let Some(key) = self.key() {
            write!(f, " for the key {key:?}")?;
        }
        match self.cost() {
            Some(cost) if cost > 1 => write!(f, ", at a cost of {cost}"),
            _ => Ok(()),
        }
    }
}
