//! The differences between two tables: [`Reloaded`].

use std::fmt;

use super::table::{RuleRef, Rules};

/// The changes that [`Limiter::reload`](crate::Limiter::reload) has made.
///
/// Rules are compared by name; exempt rules without a name by their contents. `Display` writes one line, such
/// as `1 added (search), 1 changed (others), 3 as before, in another order`. It names a rule without a name by
/// its place:
///
/// ```
/// use tower_throttle::rules::{Rule, Rules};
/// use tower_throttle::{Limiter, Quota};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let others = || Rule::named("others").quota(Quota::per_second(10));
/// let limiter = Limiter::builder().rules(Rules::new([others()])?).build()?;
///
/// let reloaded = limiter.reload(Rules::new([Rule::exempt().path("/admin/{*rest}"), others()])?)?;
/// assert_eq!(reloaded.to_string(), "1 added (rules[0]), 1 as before");
/// assert_eq!(reloaded.added[0].place(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// The new rules.
    pub added: Vec<RuleRef>,
    /// The rules that the new table does not have, with their places in the old one.
    pub removed: Vec<RuleRef>,
    /// The rules that have changed in anything but their places.
    pub changed: Vec<RuleRef>,
    /// The rules that have not changed, but for their places.
    pub unchanged: Vec<RuleRef>,
    /// True if rules of both tables have another order, so that a request that matches several may fall under another
    /// one.
    pub is_reordered: bool,
}

impl Reloaded {
    pub(crate) fn of(before: &Rules, after: &Rules) -> Self {
        let mut reloaded = Self::default();
        let mut old: Vec<_> = before.entries().iter().map(Some).collect();
        let mut last = None;
        for (place, entry) in after.entries().iter().enumerate() {
            let was = match &entry.name {
                Some(name) => before.place(name),
                None => old.iter().position(|old| *old == Some(entry)),
            };
            let list = match was.and_then(|was| old[was].take()) {
                None => &mut reloaded.added,
                Some(old) if old == entry => &mut reloaded.unchanged,
                Some(_) => &mut reloaded.changed,
            };
            list.push(after.rule_ref(place));
            if was.is_some() {
                reloaded.is_reordered |= was < last;
                last = was;
            }
        }
        let removed = (0..old.len()).filter(|&place| old[place].is_some());
        reloaded.removed = removed.map(|place| before.rule_ref(place)).collect();
        reloaded
    }
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (change, rules, was) in [
            ("added", &self.added, ""),
            ("removed", &self.removed, "was "),
            ("changed", &self.changed, ""),
        ] {
            let called = |rule: &RuleRef| match rule.name() {
                Some(name) => name.to_owned(),
                None => format!("{was}rules[{}]", rule.place()),
            };
            if !rules.is_empty() {
                let all: Vec<_> = rules.iter().map(called).collect();
                write!(f, "{} {change} ({}), ", all.len(), all.join(", "))?;
            }
        }
        write!(f, "{} as before", self.unchanged.len())?;
        match self.is_reordered {
            true => f.write_str(", in another order"),
            false => Ok(()),
        }
    }
}
