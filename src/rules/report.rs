//! Reports on a table: [`Explanation`] of a request, [`Warning`] on unreachable rules.

use std::fmt;

use super::table::{RuleRef, Rules};
use crate::key::{RequestHead, Ruled};

/// The rule that a request falls under, and the reasons why the rules before it do not match; made by
/// [`Rules::explain`].
///
/// `Display` writes a line for each of these rules.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The rule that the request falls under.
    pub rule: RuleRef,
    /// The policy, the key and the cost of the request; `None` if it is exempt.
    pub ruled: Option<Ruled>,
    /// The rules before it, in order, each with the reason why it does not match.
    pub misses: Vec<Miss>,
}

/// A rule that does not match a request, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Miss {
    /// The rule that does not match.
    pub rule: RuleRef,
    /// The first condition that the request does not meet, such as `the method is POST, not GET`.
    pub reason: String,
}

impl Rules {
    /// Finds the rule that a request falls under. For each rule before it, reports the first condition that the request
    /// does not meet: of host, method, path and headers, in this order.
    ///
    /// ```
    /// use http::Method;
    /// use tower_throttle::Quota;
    /// use tower_throttle::rules::{Rule, Rules};
    ///
    /// let rules = Rules::new([
    ///     Rule::named("search").method(Method::GET).path("/search").quota(Quota::per_minute(30)),
    ///     Rule::named("others").quota(Quota::per_second(10)),
    /// ])?;
    ///
    /// let request = http::Request::post("https://api.example.com/search").body(()).unwrap();
    /// let explanation = rules.explain(&request);
    /// assert_eq!(explanation.rule.name(), Some("others"));
    /// assert_eq!(explanation.misses[0].reason, "the method is POST, not GET");
    /// assert_eq!(
    ///     explanation.to_string(),
    ///     "rules[0] `search`: the method is POST, not GET\n\
    ///      rules[1] `others`: 10/s for the key \"api.example.com\"",
    /// );
    /// # Ok::<_, tower_throttle::rules::RulesError>(())
    /// ```
    pub fn explain<R: RequestHead>(&self, request: &R) -> Explanation {
        let mut misses = Vec::new();
        let (place, ruled) = self.find(request, |place, reason| {
            misses.push(Miss {
                rule: self.rule_ref(place),
                reason: reason(),
            });
        });
        Explanation {
            rule: self.rule_ref(place),
            ruled,
            misses,
        }
    }
}

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
        let Some(ruled) = &self.ruled else {
            return f.write_str("exempt");
        };
        match &ruled.key {
            Ok(key) => {
                let quotas = joined(ruled.policy.quotas(), " and ");
                write!(f, "{quotas} for the key {key:?}")?;
            }
            Err(no_key) => return write!(f, "refused, because {}", no_key.reason),
        }
        match ruled.cost {
            None | Some(1) => Ok(()),
            Some(cost) => write!(f, ", at a cost of {cost}"),
        }
    }
}

/// A rule that no request reaches, because a rule before it takes all of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The rule that no request reaches.
    pub rule: RuleRef,
    /// The first rule that takes all of its requests.
    pub by: RuleRef,
}

impl Rules {
    /// The rules that no request reaches, each with a rule before it that takes all of its requests.
    ///
    /// There are no false warnings. But a rule is missed if several rules take its requests only together.
    ///
    /// ```
    /// use tower_throttle::Quota;
    /// use tower_throttle::rules::{Rule, Rules};
    ///
    /// let rules = Rules::new([
    ///     Rule::named("example").host("*.example.com").quota(Quota::per_second(5)),
    ///     Rule::named("search").host("api.example.com").path("/search").quota(Quota::per_minute(30)),
    ///     Rule::exempt(),
    /// ])?;
    /// let warnings: Vec<_> = rules.warnings().iter().map(ToString::to_string).collect();
    /// assert_eq!(
    ///     warnings,
    ///     ["rules[1] `search` is never reached: rules[0] `example` takes all of its requests"],
    /// );
    /// # Ok::<_, tower_throttle::rules::RulesError>(())
    /// ```
    pub fn warnings(&self) -> Vec<Warning> {
        let warnings = self.0.iter().enumerate().filter_map(|(place, rule)| {
            let mut before = self.0[..place].iter();
            let by = before.position(|it| it.conditions.cover(&rule.conditions))?;
            Some(Warning {
                rule: self.rule_ref(place),
                by: self.rule_ref(by),
            })
        });
        warnings.collect()
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule, by) = (&self.rule, &self.by);
        write!(f, "{rule} is never reached: {by} takes all of its requests")
    }
}
