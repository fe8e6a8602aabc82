//! Rules that no request reaches: [`Rules::warnings`].

use std::collections::BTreeSet;
use std::fmt;

use http::Method;

use super::conditions::Conditions;
use super::host::HostPattern;
use super::table::{RuleRef, Rules};
use crate::key::{Template, falls_under};

/// A rule that no request reaches, because rules before it take all of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    rule: RuleRef,
    by: Vec<RuleRef>,
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
        (0..self.len())
            .filter_map(|place| self.warning(place))
            .collect()
    }

    fn warning(&self, place: usize) -> Option<Warning> {
        let (before, rest) = self.entries().split_at(place);
        let rule = &rest.first()?.conditions;
        let counts = [rule.hosts.len(), rule.methods.len(), rule.paths.all().len()];
        if counts.iter().map(|&count| count.max(1)).product::<usize>() > MOST {
            return None;
        }
        let mut by = BTreeSet::new();
        for method in each(&rule.methods) {
            for path in each(rule.paths.all()) {
                let methods = Methods::of(method, path);
                if methods.named().is_some_and(|all| all.is_empty()) {
                    continue;
                }
                for host in each(&rule.hosts) {
                    let takes_all = |entry: &super::table::Entry| {
                        takes(&entry.conditions, rule, host, path, &methods)
                    };
                    by.insert(before.iter().position(takes_all)?);
                }
            }
        }
        Some(Warning {
            rule: self.rule_ref(place),
            by: by.into_iter().map(|place| self.rule_ref(place)).collect(),
        })
    }
}

impl Warning {
    /// The place of the rule in the table, counted from 0.
    #[must_use]
    pub fn place(&self) -> usize {
        self.rule.place
    }

    /// The name of the rule, if it has one.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        self.rule.name.as_deref()
    }

    /// The places of the rules that take all of its requests, in order.
    pub fn by(&self) -> impl ExactSizeIterator<Item = usize> {
        self.by.iter().map(|rule| rule.place)
    }
}

/// Each of the values, or `None` once if there are none.
fn each<T>(values: &[T]) -> impl Iterator<Item = Option<&T>> {
    let none = values.is_empty().then_some(None);
    none.into_iter().chain(values.iter().map(Some))
}

/// True if a rule takes all requests of another one with this host, template and methods.
fn takes(
    rule: &Conditions,
    other: &Conditions,
    host: Option<&HostPattern>,
    path: Option<&Template>,
    methods: &Methods<'_>,
) -> bool {
    let is_host = |it: Option<&HostPattern>| match (it, host) {
        (Some(it), Some(host)) => it.covers(host),
        (it, _) => it.is_none(),
    };
    let is_path = |method: Option<&Method>, it: Option<&Template>| {
        let covers_path = match (it, path) {
            (Some(it), Some(path)) => it.covers_path_of(path),
            (it, _) => it.is_none(),
        };
        covers_path && Methods::of(method, it).cover(methods)
    };
    each(&rule.hosts).any(is_host)
        && each(&rule.methods).any(|method| each(rule.paths.all()).any(|it| is_path(method, it)))
        && rule
            .headers
            .iter()
            .all(|it| other.headers.iter().any(|other| it.follows_from(other)))
}

/// The methods that fall under up to two others: those of a rule and of its template.
struct Methods<'a>([Option<&'a Method>; 2]);

impl<'a> Methods<'a> {
    fn of(method: Option<&'a Method>, path: Option<&'a Template>) -> Self {
        Self([method, path.and_then(|path| path.method.as_ref())])
    }

    fn contain(&self, method: &Method) -> bool {
        self.0
            .iter()
            .flatten()
            .all(|named| falls_under(method, named))
    }

    /// `None` for all methods.
    fn named(&self) -> Option<Vec<&Method>> {
        let named = self.0[0].or(self.0[1])?;
        let candidates = [named, &Method::HEAD].into_iter();
        Some(candidates.filter(|method| self.contain(method)).collect())
    }

    fn cover(&self, others: &Self) -> bool {
        match others.named() {
            Some(others) => others.into_iter().all(|method| self.contain(method)),
            None => self.named().is_none(),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by: Vec<_> = self.by.iter().map(RuleRef::to_string).collect();
        let take = if by.len() == 1 { "takes" } else { "take" };
        write!(
            f,
            "{} is never reached: {} {take} all of its requests",
            self.rule,
            by.join(" and ")
        )
    }
}
