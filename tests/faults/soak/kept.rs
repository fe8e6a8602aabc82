//! [`Kept`]: what has departed, until it is judged.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::befalls::Loses;
use super::judge::{Gap, judge};
use super::load::KEYS;
use super::quotas::{self, Bound, SETS, Subject};
use crate::upstream::Arrival;

/// How long after a change of quotas requests may depart that were granted before.
const CARRIED: Duration = Duration::from_secs(1);

/// The most excesses to report.
const TOLD: usize = 5;

#[derive(Debug, Default)]
pub(crate) struct Kept {
    events: HashMap<Subject, Vec<(Duration, u64)>>,
    losses: Vec<Loss>,
    /// When each process departed last, for each hot key under each of the quotas.
    latest: HashMap<(usize, Subject), Duration>,
    /// How many departed, by process.
    counts: BTreeMap<usize, u64>,
}

/// State was lost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loss {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    pub(crate) loses: Loses,
    pub(crate) times: u64,
    /// The quotas that were set, and those before.
    pub(crate) set: usize,
    pub(crate) former: usize,
}

impl Kept {
    pub(crate) fn depart(&mut self, arrivals: Vec<Arrival>) {
        for Arrival {
            key,
            marks: [set, is_strict, cost],
            departed,
            process,
            ..
        } in arrivals
        {
            let subject = Subject {
                key,
                set: set as usize,
                is_strict: is_strict > 0,
            };
            let events = self.events.entry(subject).or_default();
            events.push((departed, cost));
            if key < KEYS {
                let latest = self.latest.entry((process, subject)).or_default();
                *latest = departed.max(*latest);
            }
            *self.counts.entry(process).or_default() += 1;
        }
    }

    pub(crate) fn lose(&mut self, loss: Loss) {
        self.losses.push(loss);
    }

    /// Whether this process has departed for each hot key since.
    pub(crate) fn has_departed(
        &self,
        process: usize,
        set: usize,
        is_strict: bool,
        since: Duration,
    ) -> bool {
        let subjects = (0..KEYS).map(|key| Subject {
            key,
            set,
            is_strict,
        });
        let mut latest = subjects.map(|subject| self.latest.get(&(process, subject)));
        latest.all(|latest| latest.is_some_and(|&at| at > since))
    }

    /// How many have departed from this process.
    pub(crate) fn count(&self, process: usize) -> u64 {
        self.counts.get(&process).copied().unwrap_or(0)
    }

    /// Judges all that has departed, and forgets it: nothing is left of it in any store.
    pub(crate) fn judge(&mut self) -> Vec<String> {
        let mut excesses = Vec::new();
        for (subject, mut events) in std::mem::take(&mut self.events) {
            events.sort_unstable();
            for quota in quotas::set(subject.set) {
                let bound = Bound::of(quota);
                let losses = self.losses.iter();
                let gaps: Vec<_> = losses.filter_map(|it| it.gap(subject, &bound)).collect();
                let weigh = |&(at, cost)| (at, if bound.by_cost { cost } else { 1 });
                let events: Vec<_> = events.iter().map(weigh).collect();
                let of = |excess| format!("{subject:?} ({:?}): {excess}", SETS[subject.set]);
                excesses.extend(judge(&events, &bound, &gaps).map(of));
            }
        }
        let (more, losses) = (excesses.len().saturating_sub(TOLD), &self.losses);
        excesses.truncate(TOLD);
        if !excesses.is_empty() {
            excesses.push(format!(
                "{more} more windows hold too much; lost: {losses:?}"
            ));
        }
        self.losses.clear();
        self.latest.clear();
        excesses
    }
}

impl Loss {
    /// The departures of this subject that the store did not count, if any.
    fn gap(&self, subject: Subject, bound: &Bound) -> Option<Gap> {
        // All processes use the hot keys, and so notice. A process may have departed for another key and not call
        // again in time. See `Recovery::Strict`.
        let is_known = subject.key < KEYS && subject.set == self.set;
        let is_noticed = match self.loses {
            Loses::Nothing => true,
            Loses::Quotas => false,
            Loses::All => subject.is_strict,
            Loses::Some => subject.is_strict && is_known,
        };
        let carried = match self.loses {
            Loses::Quotas => quotas::most(self.former, bound.window.min(CARRIED)),
            _ => 0,
        };
        (!is_noticed).then_some(Gap {
            from: self.from,
            to: self.to,
            extra: bound.most * self.times + carried,
        })
    }
}
