//! Rules that were found to make sense, and which of them a request falls under: [`Rules`].

use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;

use super::check;
use super::conditions::Conditions;
use super::error::RulesError;
use super::host::Seen;
use super::key::RuleKey;
use super::rule::Rule;
use crate::key::{Key, RequestHead, Spelling};
use crate::policy::{Plan, Policy};

/// An ordered table of rules, in which a request falls under the first that matches it.
///
/// It is made in code by [`new`](Self::new), or from a file, in TOML, YAML or JSON, by `read` (feature `serde`);
/// see [the module](super) for both. Clones are cheap, and the table does not change: to change the rules of a
/// limiter, give it another one by [`Limiter::reload`](crate::Limiter::reload).
#[derive(Clone)]
pub struct Rules(Arc<Table>);

struct Table {
    entries: Vec<Entry>,
    /// The rules that requests to a host may fall under, in order, for each host that a rule names.
    by_host: HashMap<Box<str>, Box<[u32]>>,
    /// Those that any other request may fall under.
    others: Box<[u32]>,
    /// The place of each rule that has a name.
    by_name: HashMap<Arc<str>, usize>,
}

/// One rule.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Option<Arc<str>>,
    pub(super) conditions: Conditions,
    /// `None` if its requests are exempt.
    pub(super) limit: Option<Limit>,
    /// As it was given.
    pub(super) rule: Rule,
}

/// What holds for the requests of a rule.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) plan: Plan,
    pub(super) key: RuleKey,
    pub(super) cost: u32,
}

impl Rules {
    /// The table of these rules, in this order.
    ///
    /// Every rule that limits has a name and a quota at least, and the last rule matches every request, so that
    /// none is unlimited, or refused, by oversight: end with [`Rule::exempt`] to let all others pass.
    ///
    /// ```
    /// use tower_throttle::Quota;
    /// use tower_throttle::rules::{Rule, Rules};
    ///
    /// let rules = Rules::new([
    ///     Rule::named("search").path("/search/{*rest}").quota(Quota::per_minute(30)),
    ///     Rule::named("others").quota(Quota::per_second(10)),
    /// ])?;
    /// assert_eq!(rules.len(), 2);
    /// # Ok::<_, tower_throttle::rules::RulesError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Names all that is wrong, with its place: see [`RulesError`]. What is found to make sense here
    /// makes a limiter, too.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, RulesError> {
        check::check(rules.into_iter().collect(), Vec::new())
    }

    pub(super) fn of(entries: Vec<Entry>) -> Self {
        let may_be = |is_for: &dyn Fn(&Conditions) -> bool| {
            let places = (0..).zip(&entries);
            let places = places.filter(|(_, entry)| is_for(&entry.conditions));
            places.map(|(place, _)| place).collect::<Box<[u32]>>()
        };
        let hosts = entries.iter().flat_map(|entry| &entry.conditions.hosts);
        let mut by_host = HashMap::new();
        for name in hosts.filter_map(|host| host.exact()) {
            by_host.entry(Box::from(name)).or_insert_with(|| {
                may_be(&|it| it.hosts.is_empty() || it.hosts.iter().any(|host| host.is_for(name)))
            });
        }
        let is_below = |it: &Conditions| it.hosts.iter().any(|host| host.exact().is_none());
        let others = may_be(&|it| it.hosts.is_empty() || is_below(it));
        let names = entries.iter().enumerate();
        let names = names.filter_map(|(place, entry)| Some((entry.name.clone()?, place)));
        Self(Arc::new(Table {
            by_host,
            others,
            by_name: names.collect(),
            entries,
        }))
    }

    /// How many rules there are; at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.0.entries.len()
    }

    /// The names of the rules, in order; `None` for one that has none, as it is exempt.
    pub fn names(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.0.entries.iter().map(|entry| entry.name.as_deref())
    }

    /// The policy of the rule of this name; `None` if there is no such rule, or if it is exempt.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<&Arc<Policy>> {
        let limit = self.named(name)?.limit.as_ref()?;
        Some(&limit.plan.policy)
    }

    pub(super) fn named(&self, name: &str) -> Option<&Entry> {
        self.0
            .by_name
            .get(name)
            .map(|&place| &self.0.entries[place])
    }

    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.0.by_name.get(name).copied()
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.0.entries
    }

    /// The place of the first rule that matches a request, and the template that its path matches there.
    pub(super) fn find<R: RequestHead>(&self, request: &R) -> (usize, Option<&Key>) {
        let mut spelling = Spelling::new();
        let host = Seen::of(request, &mut spelling);
        let Table {
            entries,
            by_host,
            others,
            ..
        } = &*self.0;
        let candidates = host
            .and_then(|seen| by_host.get(seen.name()))
            .unwrap_or(others);
        for &place in candidates {
            let place = place as usize;
            if let Ok(route) = entries[place].conditions.check(request, host) {
                return (place, route);
            }
        }
        unreachable!("the last rule matches every request")
    }
}

/// Of the same rules in the same order, however they were written.
impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        let others = other.entries().iter().map(|entry| &entry.rule);
        self.entries().iter().map(|entry| &entry.rule).eq(others)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.0.entries.iter().map(|entry| &entry.rule);
        f.debug_list().entries(rules).finish()
    }
}
