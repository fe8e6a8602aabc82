//! The reasons why a request falls under a rule: [`Explanation`].

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::conditions::{Condition, Conditions, HeaderCondition};
use super::table::{Limit, RuleRef, Rules};
use crate::key::{Authority, Key, RequestHead};
use crate::policy::Policy;

/// The rule that a request falls under, and the reasons why the rules before it do not match; made by
/// [`Rules::explain`].
///
/// `Display` writes a line for each of these rules.
#[derive(Debug, Clone)]
pub struct Explanation {
    rules: Rules,
    rule: RuleRef,
    misses: Vec<Miss>,
    key: Option<Result<Key, Cow<'static, str>>>,
}

/// A rule that does not match a request, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    rule: RuleRef,
    condition: Condition,
    reason: String,
}

impl Rules {
    /// Finds the rule that a request falls under. For each rule before it, reports the first condition that the request
    /// does not meet: of host, method, path and headers, in this order.
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
    /// assert_eq!(explanation.rule().name(), Some("others"));
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
        let mut misses = Vec::new();
        let (place, key) = self.find(request, |place, condition, host| {
            let conditions = &self.entries()[place].conditions;
            misses.push(Miss {
                rule: self.rule_ref(place),
                reason: reason(conditions, &condition, request, host),
                condition,
            });
        });
        Explanation {
            rules: self.clone(),
            rule: self.rule_ref(place),
            misses,
            key,
        }
    }
}

impl Explanation {
    /// The rule that the request falls under.
    pub fn rule(&self) -> &RuleRef {
        &self.rule
    }

    /// True if the request is not limited.
    pub fn is_exempt(&self) -> bool {
        self.limit().is_none()
    }

    /// The policy for the request; `None` if it is exempt.
    pub fn policy(&self) -> Option<&Arc<Policy>> {
        self.limit().map(|limit| &limit.plan.policy)
    }

    /// The key whose quota the request spends; `None` if it is exempt, or [has no key](Self::refusal).
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()?.as_ref().ok()
    }

    /// The reason why the request is refused, if it has no key.
    pub fn refusal(&self) -> Option<&str> {
        self.key.as_ref()?.as_ref().err().map(Cow::as_ref)
    }

    /// The cost of the request; `None` if it is exempt.
    pub fn cost(&self) -> Option<u32> {
        self.limit().map(|limit| limit.cost)
    }

    /// The rules before this one, in order, with the reasons why they do not match.
    pub fn misses(&self) -> &[Miss] {
        &self.misses
    }

    fn limit(&self) -> Option<&Limit> {
        self.rules.entries()[self.rule.place()].limit.as_ref()
    }
}

impl Miss {
    /// The rule that does not match.
    pub fn rule(&self) -> &RuleRef {
        &self.rule
    }

    /// The first condition that the request does not meet.
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// The reason as text, such as "the method is POST, not GET". For a header, it contains the condition and never
    /// the request's value, which may be a secret.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

fn reason<R: RequestHead>(
    conditions: &Conditions,
    condition: &Condition,
    request: &R,
    host: Option<&Authority<'_>>,
) -> String {
    match condition {
        Condition::Host => match (host, alternatives(&conditions.hosts)) {
            (Some(host), hosts) => format!("the host is {host}, not {hosts}"),
            (None, hosts) => format!("the request has no host, such as {hosts}"),
        },
        Condition::Method => {
            let methods = alternatives(&conditions.methods);
            format!("the method is {}, not {methods}", request.method())
        }
        Condition::Path => {
            let paths = alternatives(conditions.paths.all().iter().map(|template| &template.key));
            format!("the path {} does not match {paths}", request.path())
        }
        Condition::Header(name) => {
            let is_meant = |header: &&HeaderCondition| header.name == *name;
            alternatives(conditions.headers.iter().find(is_meant))
        }
    }
}

fn alternatives<T: fmt::Display>(all: impl IntoIterator<Item = T>) -> String {
    joined(all, " or ")
}

/// The texts of these, with this text between them.
pub(super) fn joined<T: fmt::Display>(all: impl IntoIterator<Item = T>, separator: &str) -> String {
    let all: Vec<_> = all.into_iter().map(|it| it.to_string()).collect();
    all.join(separator)
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.reason)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for miss in &self.misses {
            writeln!(f, "{miss}")?;
        }
        write!(f, "{}: ", self.rule)?;
        let (limit, key) = match (self.limit(), &self.key) {
            (Some(limit), Some(Ok(key))) => (limit, key),
            (_, Some(Err(refusal))) => return write!(f, "refused, because {refusal}"),
            _ => return f.write_str("exempt"),
        };
        let quotas = joined(limit.plan.policy.quotas(), " and ");
        write!(f, "{quotas} for the key {key:?}")?;
        match limit.cost {
            1 => Ok(()),
            cost => write!(f, ", at a cost of {cost}"),
        }
    }
}
