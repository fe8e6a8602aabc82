//! [`Departures`]: what has departed, until it is judged.

use std::collections::HashMap;

use super::load::KEYS;
use crate::prelude::*;

/// The quotas of one phase after the other.
pub(crate) const SETS: [&[&str]; 5] = [
    &["10/500ms"],
    &["12/s", "30/3s"],
    &["15/s sliding-buckets buckets=20"],
    &["12/s gcra burst=6"],
    &["16/s spacing"],
];

pub(crate) fn set(number: usize) -> Vec<Quota> {
    let quotas = SETS[number].iter();
    quotas.map(|it| it.parse().expect("a quota")).collect()
}

#[derive(Debug, Default)]
pub(crate) struct Departures {
    /// When requests for each hot key departed, and what they cost.
    events: HashMap<usize, Vec<(Duration, u64)>>,
    /// When each process departed last, for each hot key.
    latest: HashMap<(usize, usize), Duration>,
    counts: BTreeMap<usize, u64>,
}

impl Departures {
    pub(crate) fn depart(&mut self, arrivals: Vec<Arrival>) {
        for it in arrivals {
            *self.counts.entry(it.process).or_default() += 1;
            // A process may depart for another key and not call again in time. See `Recovery::Strict`.
            if it.key < KEYS {
                let events = self.events.entry(it.key).or_default();
                events.push((it.departed, it.mark));
                let latest = self.latest.entry((it.process, it.key)).or_default();
                *latest = it.departed.max(*latest);
            }
        }
    }

    /// Whether this process has departed for each hot key since.
    pub(crate) fn has_departed(&self, process: usize, since: Duration) -> bool {
        let mut latest = (0..KEYS).map(|key| self.latest.get(&(process, key)));
        latest.all(|latest| latest.is_some_and(|&at| at > since))
    }

    pub(crate) fn count(&self, process: usize) -> u64 {
        self.counts.get(&process).copied().unwrap_or(0)
    }

    /// Judges all that has departed under this set of quotas, and forgets it: all is at rest.
    pub(crate) fn judge(&mut self, number: usize) -> Vec<String> {
        self.latest.clear();
        let mut faults = Vec::new();
        for (key, events) in std::mem::take(&mut self.events) {
            let history: History = events.into_iter().collect();
            for quota in set(number) {
                let fault = history.fault(&quota);
                faults.extend(fault.map(|it| format!("of key {key}, {quota}: {it}")));
            }
        }
        faults
    }
}
