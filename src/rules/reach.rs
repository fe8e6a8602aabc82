//! Which rules no request reaches: [`Rules::warnings`].

use std::fmt;
use std::sync::Arc;

use http::Method;

use super::conditions::{Conditions, is_under};
use super::explain::Called;
use super::host::HostPattern;
use super::table::Rules;
use crate::key::{Table, Template};

/// A rule that no request reaches, as those before it take all that it could.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    rule: (usize, Option<Arc<str>>),
    by: Vec<(usize, Option<Arc<str>>)>,
}

/// As many combinations of hosts, methods and templates of one rule are looked at.
const MOST: usize = 10_000;

/// Requests of one host, method and template of a rule, each if it says so.
struct Part<'a> {
    host: Option<&'a HostPattern>,
    method: Option<&'a Method>,
    path: Option<&'a Template>,
}

impl Rules {
    /// The rules that no request reaches, with those that are in their way.
    ///
    /// For each combination of a host, a method and a template of a rule, it looks for one rule before it that takes
    /// all of those requests. So whatever it names is never reached. What it does not see is a rule that several
    /// others take away only together, within one combination: such as `*.example.com` at two ports, one with a
    /// header and one without it, or `/{id}` by all the names that there are; or one of more than 10,000 combinations.
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
        let entries = self.entries();
        let paths: Vec<&[Template]> = entries.iter().map(|it| paths(&it.conditions)).collect();
        let called = |place: usize| (place, entries[place].name.clone());
        let mut warnings = Vec::new();
        for (place, entry) in entries.iter().enumerate() {
            let conditions = &entry.conditions;
            let count = conditions.hosts.len().max(1)
                * conditions.methods.len().max(1)
                * paths[place].len().max(1);
            if count > MOST {
                continue;
            }
            let taken_by = |part: Part<'_>| {
                let mut before = entries[..place].iter().zip(&paths);
                before.position(|(it, paths)| takes(&it.conditions, paths, conditions, &part))
            };
            let parts = parts(conditions, paths[place]);
            let by: Option<Vec<usize>> = parts.map(taken_by).collect();
            if let Some(mut by) = by {
                by.sort_unstable();
                by.dedup();
                warnings.push(Warning {
                    rule: called(place),
                    by: by.into_iter().map(called).collect(),
                });
            }
        }
        warnings
    }
}

impl Warning {
    /// The place of the rule in the table, counted from 0.
    #[must_use]
    pub fn place(&self) -> usize {
        self.rule.0
    }

    /// The name of the rule, if it has one.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        self.rule.1.as_deref()
    }

    /// The places of the rules that take all of its requests, in order.
    pub fn by(&self) -> impl ExactSizeIterator<Item = usize> {
        self.by.iter().map(|(place, _)| *place)
    }
}

fn paths(conditions: &Conditions) -> &[Template] {
    conditions.paths.as_ref().map_or(&[], Table::templates)
}

/// All that a rule is for, in parts. Those that no request is of are left out.
fn parts<'a>(conditions: &'a Conditions, paths: &'a [Template]) -> impl Iterator<Item = Part<'a>> {
    let methods = each(&conditions.methods);
    methods.flat_map(move |method| {
        each(paths).flat_map(move |path| {
            let is_any = Methods::of(method, path).is_any();
            let hosts = each(&conditions.hosts).filter(move |_| is_any);
            hosts.map(move |host| Part { host, method, path })
        })
    })
}

/// Each of them, or once nothing if there are none.
fn each<T>(all: &[T]) -> impl Iterator<Item = Option<&T>> + Clone {
    let none = all.is_empty().then_some(None);
    none.into_iter().chain(all.iter().map(Some))
}

/// Whether a rule takes all requests of a part of another.
fn takes(rule: &Conditions, paths: &[Template], other: &Conditions, part: &Part<'_>) -> bool {
    let wanted = Methods::of(part.method, part.path);
    let is_host = |host: &HostPattern| part.host.is_some_and(|other| host.covers(other));
    let is_path = |method: Option<&Method>| {
        let takes = |path: &Template| {
            let shape = part.path.map(|path| &path.shape);
            shape.is_some_and(|shape| path.shape.covers(shape))
                && Methods::of(method, Some(path)).cover(&wanted)
        };
        match paths {
            [] => Methods::of(method, None).cover(&wanted),
            paths => paths.iter().any(takes),
        }
    };
    let follow = || {
        let mut wanted = rule.headers.iter();
        wanted.all(|it| other.headers.iter().any(|other| it.follows_from(other)))
    };
    (rule.hosts.is_empty() || rule.hosts.iter().any(is_host))
        && each(&rule.methods).any(is_path)
        && follow()
}

/// The methods of requests that fall under up to two others.
struct Methods<'a>(Option<&'a Method>, Option<&'a Method>);

impl<'a> Methods<'a> {
    fn of(method: Option<&'a Method>, path: Option<&'a Template>) -> Self {
        Self(method, path.and_then(|path| path.method.as_ref()))
    }

    fn contain(&self, method: &Method) -> bool {
        let is_under = |rule: &Method| is_under(method, rule);
        self.0.is_none_or(is_under) && self.1.is_none_or(is_under)
    }

    /// All that they contain, unless they contain all but for a few.
    fn all(&self) -> Option<Vec<&Method>> {
        let named = self.0.or(self.1)?;
        let all = [named, &Method::HEAD].into_iter();
        Some(all.filter(|method| self.contain(method)).collect())
    }

    fn is_any(&self) -> bool {
        self.all().is_none_or(|all| !all.is_empty())
    }

    fn cover(&self, others: &Self) -> bool {
        match others.all() {
            Some(all) => all.iter().all(|method| self.contain(method)),
            None => self.0.is_none() && self.1.is_none(),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let called = |(place, name): &(usize, Option<Arc<str>>)| {
            let name = name.as_deref();
            Called {
                place: *place,
                name,
            }
            .to_string()
        };
        let by: Vec<_> = self.by.iter().map(called).collect();
        let take = if by.len() == 1 { "takes" } else { "take" };
        let (rule, by) = (called(&self.rule), by.join(" and "));
        write!(
            f,
            "{rule} is never reached: {by} {take} all of its requests"
        )
    }
}
