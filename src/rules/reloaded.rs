//! What has changed from one table to the next: [`Reloaded`].

use std::fmt;
use std::sync::Arc;

use super::table::{Entry, Rules};

/// What [`Limiter::reload`](crate::Limiter::reload) has changed.
///
/// Rules are the same by their names; exempt rules that have none, by all that they say. It is shown as one line, such
/// as `1 added (search), 1 changed (others), 3 as before, in another order`, in which a rule without a name is called by
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
/// assert!(reloaded.added_unnamed().eq([0]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    added: Found,
    removed: Found,
    changed: Found,
    unchanged: Found,
    is_reordered: bool,
}

/// Rules by their names, and the places of those that have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Found {
    named: Vec<Arc<str>>,
    unnamed: Vec<usize>,
}

impl Reloaded {
    pub(super) fn of(before: &Rules, after: &Rules) -> Self {
        let mut reloaded = Self::default();
        let mut old: Vec<Option<&Entry>> = before.entries().iter().map(Some).collect();
        let mut last = None;
        for (place, entry) in after.entries().iter().enumerate() {
            let was = match &entry.name {
                Some(name) => before.place(name),
                None => old.iter().position(|old| {
                    old.is_some_and(|old| old.name.is_none() && old.rule == entry.rule)
                }),
            };
            let old = was.and_then(|was| old[was].take());
            let list = match old {
                None => &mut reloaded.added,
                Some(old) if old.rule == entry.rule => &mut reloaded.unchanged,
                Some(_) => &mut reloaded.changed,
            };
            list.push(place, entry);
            if was.is_some() {
                reloaded.is_reordered |= was < last;
                last = was;
            }
        }
        for (place, entry) in old.into_iter().enumerate() {
            if let Some(entry) = entry {
                reloaded.removed.push(place, entry);
            }
        }
        reloaded
    }

    /// The names of the rules that were not there before, in their order.
    pub fn added(&self) -> impl ExactSizeIterator<Item = &str> {
        self.added.names()
    }

    /// The names of the rules that are there no longer.
    pub fn removed(&self) -> impl ExactSizeIterator<Item = &str> {
        self.removed.names()
    }

    /// The names of the rules of which anything has changed but for their places.
    pub fn changed(&self) -> impl ExactSizeIterator<Item = &str> {
        self.changed.names()
    }

    /// The names of the rules that are as they were.
    pub fn unchanged(&self) -> impl ExactSizeIterator<Item = &str> {
        self.unchanged.names()
    }

    /// The places of the exempt rules without a name that were not there before, counted from 0.
    pub fn added_unnamed(&self) -> impl ExactSizeIterator<Item = usize> {
        self.added.unnamed.iter().copied()
    }

    /// The places, in the table before, of the exempt rules without a name that are there no longer.
    pub fn removed_unnamed(&self) -> impl ExactSizeIterator<Item = usize> {
        self.removed.unnamed.iter().copied()
    }

    /// The places of the exempt rules without a name that were there before, counted from 0.
    pub fn unchanged_unnamed(&self) -> impl ExactSizeIterator<Item = usize> {
        self.unchanged.unnamed.iter().copied()
    }

    /// Whether rules that were there before stand in another order, so that a request which meets the conditions of
    /// several may fall under another one.
    #[must_use]
    pub fn is_reordered(&self) -> bool {
        self.is_reordered
    }
}

impl Found {
    fn push(&mut self, place: usize, entry: &Entry) {
        match &entry.name {
            Some(name) => self.named.push(name.clone()),
            None => self.unnamed.push(place),
        }
    }

    fn len(&self) -> usize {
        self.named.len() + self.unnamed.len()
    }

    fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.named.iter().map(|name| &**name)
    }
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("added", &self.added, ""),
            ("removed", &self.removed, "was "),
            ("changed", &self.changed, ""),
        ];
        for (what, rules, was) in lists {
            if rules.len() > 0 {
                let names = rules.names().map(str::to_owned);
                let places = rules
                    .unnamed
                    .iter()
                    .map(|place| format!("{was}rules[{place}]"));
                let called: Vec<_> = names.chain(places).collect();
                write!(f, "{} {what} ({}), ", called.len(), called.join(", "))?;
            }
        }
        let order = if self.is_reordered {
            ", in another order"
        } else {
            ""
        };
        write!(f, "{} as before{order}", self.unchanged.len())
    }
}
