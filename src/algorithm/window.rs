//! The sliding window: at most N units in any window of length W.

use std::collections::VecDeque;

use super::{Algorithm, Settlement, Terms, Unit, span};

/// The most entries of a log; more departures are counted together, at the later time.
pub(crate) const MOST_ENTRIES: usize = 1_000;

/// Logs that usually have more entries than this have a ring.
pub(crate) const MOST_WHOLE: u64 = 50;

/// How far ahead of now a log usually reaches: the horizon, the guard and the buffer.
const AHEAD: u64 = 120_000;

/// The departures of a sliding window quota, in microseconds, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(super) unit: Unit,
    pub(super) limit: u32,
    pub(super) window: u64,
    /// Recorded times are rounded up to multiples of this. 1 records them as they are.
    pub(super) grain: u64,
    /// Whether a value holds the log as a ring, which is read and written in part.
    pub(super) has_ring: bool,
    pub(super) log: VecDeque<Entry>,
    /// The units of all entries.
    pub(super) used: u64,
}

/// Departures that were recorded at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(super) recorded: u64,
    pub(super) units: u32,
}

impl Window {
    /// A limit of more than 1,000 rounds recorded times up to about a 640th of the window, so that the log covers the
    /// window and the horizon, and two logs of one policy fit into 20 kB.
    pub(crate) fn new(limit: u32, window: u64) -> Self {
        let is_long = limit as usize > MOST_ENTRIES;
        let grain = if is_long {
            (window + window.min(AHEAD)).div_ceil(640)
        } else {
            1
        };
        Self::with_grain(limit, window, grain)
    }

    /// Departures within one of so many parts of the window are counted together, at its end.
    pub(crate) fn with_buckets(limit: u32, window: u64, buckets: u32) -> Self {
        Self::with_grain(limit, window, window.div_ceil(buckets.into()))
    }

    fn with_grain(limit: u32, window: u64, grain: u64) -> Self {
        let mut this = Self {
            limit,
            window,
            grain,
            ..Self::default()
        };
        this.has_ring = this.usual_entries() > MOST_WHOLE;
        this
    }

    /// The entries that the log usually has at most.
    pub(super) fn usual_entries(&self) -> u64 {
        let times = (self.window + self.window.min(AHEAD)) / self.grain + 10;
        times.min(self.limit.into())
    }

    fn round(&self, recorded: u64) -> u64 {
        recorded.div_ceil(self.grain) * self.grain
    }

    fn recorded_of(&self, rank: u64) -> Option<u64> {
        let mut before = 0;
        let entry = self.log.iter().find(|entry| {
            before += u64::from(entry.units);
            before > rank
        });
        entry.map(|entry| entry.recorded)
    }

    fn free(&self, at: u64) -> u64 {
        let has_left = |entry: &&Entry| entry.recorded + self.window <= at;
        let left = self.log.iter().take_while(has_left);
        let left: u64 = left.map(|entry| u64::from(entry.units)).sum();
        u64::from(self.limit).saturating_sub(self.used - left)
    }
}

impl Algorithm for Window {
    fn drop_expired(&mut self, now: u64) {
        while let Some(entry) = self.log.front()
            && entry.recorded + self.window <= now
        {
            self.used -= u64::from(entry.units);
            self.log.pop_front();
        }
    }

    fn earliest(&self, from: u64, ahead: u64, cost: u64, terms: &Terms) -> u64 {
        let most = u64::from(self.limit);
        let Some(leaving) = (self.used + ahead + cost).checked_sub(most + 1) else {
            return from;
        };
        // The unit of this rank has to leave the window first, counted from 0.
        // The log holds more than the limit after the quota was lowered.
        let rounds = (leaving + most).saturating_sub(self.used.max(most)) / most;
        let rank = leaving - rounds * most;
        let recorded = self.recorded_of(rank).unwrap_or(terms.now + terms.hold);
        let first = from.max(recorded + self.window);
        first + span(rounds, self.window + terms.hold)
    }

    fn fits(&self, at: u64, cost: u32, _terms: &Terms) -> u64 {
        self.free(at) / u64::from(cost)
    }

    fn take(&mut self, _at: u64, recorded: u64, units: u32) {
        let recorded = self.round(recorded);
        self.used += u64::from(units);
        // Most departures are recorded last.
        let place = match self.log.back() {
            Some(last) if recorded < last.recorded => {
                self.log.partition_point(|entry| entry.recorded < recorded)
            }
            Some(last) if recorded == last.recorded => self.log.len() - 1,
            _ => self.log.len(),
        };
        if self.log.len() < MOST_ENTRIES {
            match self.log.get_mut(place) {
                Some(entry) if entry.recorded == recorded => entry.units += units,
                _ => self.log.insert(place, Entry { recorded, units }),
            }
        } else if let Some(entry) = self.log.get_mut(place) {
            entry.units += units;
        } else if let Some(last) = self.log.back_mut() {
            *last = Entry {
                recorded,
                units: last.units + units,
            };
        }
    }

    fn settle(&mut self, settled: &Settlement) {
        if settled.difference == 0 {
            return;
        }
        let recorded = self.round(settled.recorded);
        if let Ok(more) = u64::try_from(settled.difference) {
            // Values hold the sum of all units in four bytes.
            let most = u64::from(u32::MAX / 2).saturating_sub(self.used);
            let more = more.min(most) as u32;
            if more > 0 {
                self.take(0, recorded, more);
            }
            return;
        }
        let Ok(place) = self
            .log
            .binary_search_by_key(&recorded, |entry| entry.recorded)
        else {
            return;
        };
        let returned = u64::from(self.log[place].units).min(settled.difference.unsigned_abs());
        self.used -= returned;
        self.log[place].units -= returned as u32;
        if self.log[place].units == 0 {
            self.log.remove(place);
        }
    }

    fn expires(&self) -> u64 {
        self.log
            .back()
            .map_or(0, |last| last.recorded + self.window)
    }

    fn clear(&mut self) {
        (self.used, self.log) = (0, VecDeque::new());
    }

    fn memory(&self) -> u64 {
        self.window + self.grain
    }
}
