//! The rules of a limiter while they change: [`Live`].

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::reloaded::Reloaded;
use super::table::{Entry, Rules};
use crate::epoch::{Epochs, Shared};
use crate::key::{Extracted, RequestHead, Ruled};
use crate::outage::Health;
use crate::store::Store;
use crate::telemetry::{OfStore, Settings};

/// The most removed rules that are kept.
const MOST_REMOVED: usize = 1_000;

/// The rules of a limiter; its clones share them.
pub(crate) struct Live {
    shared: Arc<Shared>,
    now: ArcSwap<Now>,
    /// Locked during a reload, so that concurrent reloads do not mix.
    removed: Mutex<Vec<Removed>>,
}

/// The current rules with the epochs of their requests.
struct Now {
    rules: Rules,
    /// For each rule, unless it is exempt.
    limits: Vec<Option<InForce>>,
    /// The epochs of the last rule; unlimited if that is exempt.
    last: Epochs,
}

/// A rule that was removed, kept while its epochs hold facts that count if it comes back.
struct Removed {
    name: Arc<str>,
    /// Keeps the epochs alive.
    _handle: Epochs,
    until: Instant,
}

struct InForce {
    /// Follows the rule through reloads, for [`Limiter::rule`](crate::Limiter::rule).
    handle: Epochs,
    /// The epoch that began with these rules.
    epochs: Epochs,
}

impl Live {
    pub(crate) fn new(
        rules: Rules,
        store: Arc<dyn Store>,
        denials: usize,
        settings: Settings,
    ) -> Self {
        let shared = Shared::listening(store, denials, settings, OfStore::of_rules());
        let now = Now::of(rules, &shared, None);
        Self {
            now: ArcSwap::from_pointee(now),
            shared,
            removed: Mutex::default(),
        }
    }

    /// Finds the rule that a request falls under.
    pub(crate) fn judge<R: RequestHead>(&self, request: &R) -> Extracted {
        let now = self.now.load();
        let (place, key) = now.rules.find(request, |_, _, _| {});
        let limit = &now.rules.entries()[place].limit;
        match (limit, key, &now.limits[place]) {
            (Some(limit), Some(key), Some(in_force)) => {
                Extracted::Ruled(Ruled::new(in_force.epochs.clone(), key, limit.cost))
            }
            _ => Extracted::Exempt,
        }
    }

    /// The epochs of the last rule.
    pub(crate) fn last(&self) -> Epochs {
        self.now.load().last.clone()
    }

    /// The epochs of the rule with this name; they follow it through reloads.
    pub(crate) fn rule(&self, name: &str) -> Option<Epochs> {
        let now = self.now.load();
        let in_force = now.limits[now.rules.place(name)?].as_ref()?;
        Some(in_force.handle.clone())
    }

    pub(crate) fn rules(&self) -> Rules {
        self.now.load().rules.clone()
    }

    pub(crate) fn health(&self) -> Health {
        self.shared.health()
    }

    pub(crate) fn lines(&self) -> usize {
        self.shared.lines()
    }

    pub(crate) fn reload(&self, rules: Rules) -> Reloaded {
        let mut removed = self.removed.lock();
        let before = self.now.load_full();
        let reloaded = Reloaded::of(&before.rules, &rules);
        let now = Arc::new(Now::of(rules, &self.shared, Some(&before)));
        self.now.store(now.clone());
        for in_force in now.limits.iter().flatten() {
            let epoch = in_force.epochs.clone().current();
            in_force.handle.go_on_with(epoch);
        }
        before.keep_what_counts(&now.rules, &mut removed);
        reloaded
    }
}

impl Now {
    fn of(rules: Rules, shared: &Arc<Shared>, before: Option<&Self>) -> Self {
        let in_force = |entry: &Entry| {
            let (name, limit) = (entry.rule.name.as_ref()?, entry.limit.as_ref()?);
            let (handle, epoch) = shared.enter(name, limit.plan.clone());
            Some(InForce {
                handle,
                epochs: Epochs::of(epoch),
            })
        };
        let limits: Vec<_> = rules.entries().iter().map(in_force).collect();
        let last = limits.last().and_then(Option::as_ref);
        let last = last.map(|in_force| in_force.epochs.clone());
        let unlimited = || before.filter(|it| it.is_open()).map(|it| it.last.clone());
        Self {
            last: last.unwrap_or_else(|| unlimited().unwrap_or_else(Epochs::unlimited)),
            limits,
            rules,
        }
    }

    /// Adds rules that the new table does not have, and drops those that no longer count.
    fn keep_what_counts(&self, rules: &Rules, removed: &mut Vec<Removed>) {
        for (entry, in_force) in self.rules.entries().iter().zip(&self.limits) {
            if let (Some(name), Some(InForce { handle, .. })) = (&entry.rule.name, in_force)
                && rules.policy(name).is_none()
            {
                removed.retain(|it| it.name != *name);
                removed.push(Removed {
                    name: name.clone(),
                    _handle: handle.clone(),
                    until: handle.counts_until(),
                });
            }
        }
        let now = Instant::now();
        removed.retain(|it| now < it.until);
        let too_many = removed.len().saturating_sub(MOST_REMOVED);
        removed.drain(..too_many);
    }

    /// True if the last rule is exempt.
    fn is_open(&self) -> bool {
        self.limits.last().is_some_and(Option::is_none)
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = self.now.load();
        f.debug_struct("Live")
            .field("rules", &now.rules)
            .finish_non_exhaustive()
    }
}
