//! Reports on past departures: [`Corrections`].

use super::Units;

/// A correction of what a past departure cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Settlement {
    /// [When it was recorded](super::Grant::recorded).
    pub recorded: u64,
    /// The number of the unit among those of the policy.
    pub unit: usize,
    /// The units to add; below 0, to return. A return of all that a departure cost gives it back.
    pub difference: i64,
}

/// The report of a process on its past departures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Corrections {
    /// If answers were lost since the last one that arrived, the number of the first such call, else 0: the
    /// departures that it granted are taken back.
    pub lost: u64,
    /// Changes of their costs.
    pub settlements: Vec<Settlement>,
    /// How many more there were, each joined with one of the same departures.
    pub joined: usize,
    /// The units of departures that the process took over from its requests of other shares; below 0, that these took
    /// over.
    pub moved: i64,
}

impl Corrections {
    /// The most settlements that are kept while the store cannot be called. Other departures stay charged.
    pub(crate) const MOST: usize = 1_024;

    /// Returns true if what was recorded stays as it is.
    pub(crate) fn is_empty(&self) -> bool {
        self.lost == 0 && self.settlements.is_empty()
    }

    /// By how many units past departures cost more than before.
    pub(crate) fn charged(&self) -> i64 {
        self.settlements.iter().map(|it| it.difference).sum()
    }

    /// The units of past departures that are given back.
    pub(crate) fn returned(&self) -> Units {
        let mut returned = Units::default();
        for settlement in &self.settlements {
            returned.0[settlement.unit] += settlement.difference.min(0).unsigned_abs();
        }
        returned
    }

    /// Takes the report for a call. A lost call is reported until an answer arrives.
    pub(crate) fn take_report(&mut self) -> Self {
        let sent = std::mem::take(self);
        self.lost = sent.lost;
        sent
    }

    /// The answer to this call was lost.
    pub(crate) fn note_lost(&mut self, call: u64) {
        if self.lost == 0 {
            self.lost = call;
        }
    }

    /// Past departures stay as they were recorded.
    pub(crate) fn drop_settlements(&mut self) {
        self.settlements.clear();
        self.joined = 0;
    }

    /// Adds a settlement to the next report. If there are too many, departures that are returned stay charged.
    pub(crate) fn add(&mut self, settlement: Settlement) {
        // Requests that depart together return their departures together.
        if let Some(last) = self.settlements.last_mut()
            && (last.recorded, last.unit) == (settlement.recorded, settlement.unit)
            && last.difference < 0
            && settlement.difference < 0
        {
            last.difference += settlement.difference;
            self.joined += 1;
        } else if self.settlements.len() < Self::MOST {
            self.settlements.push(settlement);
        } else if settlement.difference > 0
            && let Some(returned) = self.settlements.iter_mut().find(|it| it.difference < 0)
        {
            *returned = settlement;
        }
    }
}
