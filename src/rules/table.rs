//! The table of checked rules: [`Rules`].

use std::fmt;
use std::sync::Arc;

use super::check::check;
use super::conditions::Conditions;
use super::error::RulesError;
use super::key::RuleKey;
use super::rule::Rule;
use crate::cost::RequestOptions;
use crate::key::{Authority, RequestHead, Ruled};
use crate::policy::Policy;
use crate::priority::Priority;

/// An ordered table of rules, in which a request falls under the first that matches it.
///
/// It is made in code by [`new`](Self::new), or from a file, in TOML, YAML or JSON, by `read` (feature `serde`);
/// see [the module](super) for both. Clones are cheap, and the table does not change: to change the rules of a
/// limiter, give it another one by [`Limiter::reload`](crate::Limiter::reload). Tables are equal if their rules and the order
/// are equal, in whatever format they were written.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules(pub(super) Arc<[Entry]>);

/// One rule.
#[derive(Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) name: Option<Arc<str>>,
    pub(super) conditions: Conditions,
    /// `None` if its requests are exempt.
    pub(super) limit: Option<Limit>,
}

/// The policy, the key and the options of a rule's requests.
#[derive(Debug, PartialEq)]
pub(super) struct Limit {
    pub(super) policy: Arc<Policy>,
    pub(super) key: RuleKey,
    pub(super) cost: Option<u32>,
    pub(super) priority: Option<Priority>,
}

/// The place and the name of a rule in a table.
///
/// `Display` writes them as ``rules[2] `search` ``.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleRef {
    place: usize,
    name: Option<Arc<str>>,
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
    /// Reports all mistakes, each with its place: see [`RulesError`]. Rules without mistakes never make a limiter fail.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, RulesError> {
        let entries = check(rules.into_iter().collect())?;
        Ok(Self(entries.into()))
    }

    /// The number of rules; at least one.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The names of the rules, in order; `None` for an exempt rule without a name.
    pub fn names(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.0.iter().map(|entry| entry.name.as_deref())
    }

    /// The policies of the rules that limit.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        let limits = self.0.iter().filter_map(|entry| entry.limit.as_ref());
        limits.map(|limit| &limit.policy)
    }

    pub(super) fn rule_ref(&self, place: usize) -> RuleRef {
        RuleRef {
            place,
            name: self.0[place].name.clone(),
        }
    }

    /// Returns the place of the first rule that matches a request, and unless it is exempt, the policy, the key and the
    /// cost.
    ///
    /// Calls `missed` for every rule before it, with a function that returns the reason.
    pub(crate) fn find<R: RequestHead>(
        &self,
        request: &R,
        mut missed: impl FnMut(usize, &dyn Fn() -> String),
    ) -> (usize, Option<Ruled>) {
        let host = Authority::of(request);
        let host = host.as_ref();
        for (place, entry) in self.0.iter().enumerate() {
            let missed = |reason: &dyn Fn() -> String| missed(place, reason);
            if let Some(matched) = entry.conditions.check(request, host, missed) {
                let ruled = entry.limit.as_ref().map(|limit| Ruled {
                    policy: limit.policy.clone(),
                    key: limit.key.extract(&matched),
                    cost: limit.cost,
                    options: RequestOptions {
                        cost: None,
                        priority: limit.priority,
                        share: limit.key.share(&matched),
                    },
                });
                return (place, ruled);
            }
        }
        unreachable!("the last rule matches every request")
    }
}

impl RuleRef {
    /// The place of the rule, counted from 0.
    pub fn place(&self) -> usize {
        self.place
    }

    /// The name of the rule; every rule that limits has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rules[{}]", self.place)?;
        match &self.name {
            Some(name) => write!(f, " `{name}`"),
            None => Ok(()),
        }
    }
}
