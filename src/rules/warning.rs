//! Rules that no request reaches: [`Rules::warnings`].

use std::collections::BTreeSet;
use std::fmt;

use http::Method;

use super::conditions::{Conditions, common};
use super::explain::joined;
use super::host::HostPattern;
use super::table::{Entry, RuleRef, Rules};
use crate::key::{Template, falls_under};

/// A rule that no request reaches, because rules before it take all of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The rule that no request reaches.
    pub rule: RuleRef,
    /// The rules that take all of its requests, in order.
    pub by: Vec<RuleRef>,
}

/// Rules with more combinations of hosts, methods and templates are not examined.
const MOST: usize = 10_000;

impl Rules {
    /// The rules that no request reaches, with the rules before them that take all of their requests.
    ///
    /// For each combination of a host, a method and a template of a rule, it looks for one rule before it that takes
    /// all of those requests. So there are no false warnings. But a rule is missed if several rules
    /// take the requests of one combination only together, or if it has more than 10,000 combinations.
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
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let places = 0..self.len();
        places.filter_map(|place| self.warning(place)).collect()
    }

    fn warning(&self, place: usize) -> Option<Warning> {
        let (before, rest) = self.entries().split_at(place);
        let rule = &rest.first()?.conditions;
        let counts = [rule.hosts.len(), rule.methods.len(), rule.paths.all().len()];
        if counts.iter().map(|&count| count.max(1)).product::<usize>() > MOST {
            return None;
        }
        let mut by = BTreeSet::new();
        for (method, path) in methods_and_paths(rule) {
            for host in each(&rule.hosts) {
                let takes_all = |entry: &Entry| {
                    let headers = &entry.conditions.headers;
                    takes(&entry.conditions, host, method, path)
                        && (headers.iter())
                            .all(|it| rule.headers.iter().any(|own| it.follows_from(own)))
                };
                by.insert(before.iter().position(takes_all)?);
            }
        }
        Some(Warning {
            rule: self.rule_ref(place),
            by: by.into_iter().map(|place| self.rule_ref(place)).collect(),
        })
    }
}

/// Each of the values, or `None` once if there are none.
fn each<T>(values: &[T]) -> impl Iterator<Item = Option<&T>> {
    let none = values.is_empty().then_some(None);
    none.into_iter().chain(values.iter().map(Some))
}

/// Each combination of a method and a template of a rule that a request can meet, with the method common to both.
fn methods_and_paths(
    rule: &Conditions,
) -> impl Iterator<Item = (Option<&Method>, Option<&Template>)> {
    each(rule.paths.all()).flat_map(|path| {
        let own = path.and_then(|path| path.method.as_ref());
        let methods = each(&rule.methods).filter_map(move |method| common(method, own));
        methods.map(move |method| (method, path))
    })
}

/// True if a rule takes all requests with this host, method and template, whatever their headers.
fn takes(
    rule: &Conditions,
    host: Option<&HostPattern>,
    method: Option<&Method>,
    path: Option<&Template>,
) -> bool {
    let takes_host = |it: &HostPattern| host.is_some_and(|host| it.covers(host));
    let takes_method = |it: &Method| method.is_some_and(|method| falls_under(method, it));
    let takes_path = |it: &Template| path.is_some_and(|path| it.covers_path_of(path));
    (rule.hosts.is_empty() || rule.hosts.iter().any(takes_host))
        && methods_and_paths(rule)
            .any(|(method, path)| method.is_none_or(takes_method) && path.is_none_or(takes_path))
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = joined(&self.by, " and ");
        let take = if self.by.len() == 1 { "takes" } else { "take" };
        let rule = &self.rule;
        write!(
            f,
            "{rule} is never reached: {by} {take} all of its requests"
        )
    }
}
