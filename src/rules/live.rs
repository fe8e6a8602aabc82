//! The rules that a limiter goes by, and how they change: [`Live`].

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

/// How many rules that are there no longer are remembered at most.
const MOST_REMOVED: usize = 1_000;

/// The rules that a limiter goes by; clones of it share them.
pub(crate) struct Live {
    shared: Arc<Shared>,
    now: ArcSwap<Now>,
    /// Held while rules change, so that the last to change them wins in all.
    removed: Mutex<Vec<Removed>>,
}

/// The rules of the moment, and the epochs in which their requests begin.
struct Now {
    rules: Rules,
    /// For each rule, unless it is exempt.
    limits: Vec<Option<InForce>>,
    /// Of the last rule; if that is exempt, everything departs.
    last: Epochs,
}

/// A rule that is there no longer, while something counts that only its epochs know: should it come back.
struct Removed {
    name: Arc<str>,
    /// Keeps them.
    _handle: Epochs,
    until: Instant,
}

struct InForce {
    /// Of all epochs of the rule, for whoever goes by the rule itself.
    handle: Epochs,
    /// Of the one that has begun with these rules.
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

    /// Which rule a request falls under, and whose quota it spends.
    pub(crate) fn judge<R: RequestHead>(&self, request: &R) -> Extracted {
        let now = self.now.load();
        let (place, route) = now.rules.find(request);
        let limit = &now.rules.entries()[place].limit;
        match (limit, &now.limits[place]) {
            (Some(limit), Some(in_force)) => {
                let key = limit.key.extract(request, route);
                Extracted::Ruled(Ruled::new(in_force.epochs.clone(), key, limit.cost))
            }
            _ => Extracted::Exempt,
        }
    }

    /// The epochs of the last rule.
    pub(crate) fn last(&self) -> Epochs {
        self.now.load().last.clone()
    }

    /// The epochs of the rule of this name, as it changes.
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
            let (name, limit) = (entry.name.as_ref()?, entry.limit.as_ref()?);
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

    /// Adds what is not in the rules any more, and drops what counts no longer.
    fn keep_what_counts(&self, rules: &Rules, removed: &mut Vec<Removed>) {
        let names = self.rules.entries().iter().map(|entry| entry.name.as_ref());
        for (name, in_force) in names.zip(&self.limits) {
            if let (Some(name), Some(InForce { handle, .. })) = (name, in_force)
                && rules.named(name).is_none_or(|entry| entry.limit.is_none())
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

    /// Whether the last rule is exempt.
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
