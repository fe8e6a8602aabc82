//! The sliding window: at most N units in any window of length W.

use std::collections::VecDeque;

use super::{Algorithm, Settlement, Size, Times, span};

/// The most entries of a log; more departures are counted together, at the later time.
pub(crate) const MOST_ENTRIES: usize = 1_000;

/// Logs that usually have more entries than this have a ring.
pub(crate) const MOST_WHOLE: u64 = 50;

/// How far ahead of now a log usually reaches: the horizon, the guard and the buffer.
const AHEAD: u64 = 120_000;

/// The departures of a sliding window quota, in microseconds, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Window {
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
    pub(crate) fn new(size: Size) -> Self {
        let is_long = size.units as usize > MOST_ENTRIES;
        let grain = if is_long {
            covered(size).div_ceil(640)
        } else {
            1
        };
        Self::with_grain(size, grain)
    }

    /// Recorded times are rounded up to multiples of this grain.
    pub(super) fn with_grain(size: Size, grain: u64) -> Self {
        let mut this = Self {
            grain,
            ..Self::default()
        };
        this.has_ring = this.usual_entries(size) > MOST_WHOLE;
        this
    }

    /// The entries that the log usually has at most.
    pub(super) fn usual_entries(&self, size: Size) -> u64 {
        let times = covered(size) / self.grain + 10;
        times.min(size.units.into())
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

    /// The units that can be recorded before others leave the log: values hold the sum of all units in four bytes.
    fn recordable(&self) -> u64 {
        u64::from(u32::MAX).saturating_sub(self.used)
    }

    fn free(&self, size: Size, at: u64) -> u64 {
        let has_left = |entry: &&Entry| entry.recorded + size.span <= at;
        let left = self.log.iter().take_while(has_left);
        let left: u64 = left.map(|entry| u64::from(entry.units)).sum();
        u64::from(size.units).saturating_sub(self.used - left)
    }
}

/// The time that a log usually covers: the window, and what lies ahead of now.
fn covered(Size { span, .. }: Size) -> u64 {
    span + span.min(AHEAD)
}

impl Algorithm for Window {
    fn drop_expired(&mut self, size: Size, now: u64) {
        while let Some(entry) = self.log.front()
            && entry.recorded + size.span <= now
        {
            self.used -= u64::from(entry.units);
            self.log.pop_front();
        }
    }

    fn earliest(&self, size: Size, from: u64, ahead: u64, cost: u64, times: &Times) -> u64 {
        let most = u64::from(size.units);
        let Some(leaving) = (self.used + ahead + cost).checked_sub(most + 1) else {
            return from;
        };
        // The unit of this rank has to leave the window first, counted from 0.
        // The log holds more than the limit after the quota was lowered.
        let rounds = (leaving + most).saturating_sub(self.used.max(most)) / most;
        let rank = leaving - rounds * most;
        let recorded = self.recorded_of(rank).unwrap_or(times.now + times.lateness);
        let first = from.max(recorded + size.span);
        first + span(rounds, size.span + times.lateness)
    }

    fn fits(&self, size: Size, at: u64, cost: u32, _times: &Times) -> u64 {
        let free = self.free(size, at).min(self.recordable());
        free / u64::from(cost)
    }

    fn take(&mut self, _size: Size, _at: u64, recorded: u64, units: u32) {
        let units = self.recordable().min(units.into()) as u32;
        if units == 0 {
            return;
        }
        let recorded = self.round(recorded);
        self.used += u64::from(units);
        // Most departures are recorded last.
        let index = match self.log.back() {
            Some(last) if recorded < last.recorded => {
                self.log.partition_point(|entry| entry.recorded < recorded)
            }
            Some(last) if recorded == last.recorded => self.log.len() - 1,
            _ => self.log.len(),
        };
        if self.log.len() < MOST_ENTRIES {
            match self.log.get_mut(index) {
                Some(entry) if entry.recorded == recorded => entry.units += units,
                _ => self.log.insert(index, Entry { recorded, units }),
            }
        } else if let Some(entry) = self.log.get_mut(index) {
            entry.units += units;
        } else if let Some(last) = self.log.back_mut() {
            *last = Entry {
                recorded,
                units: last.units + units,
            };
        }
    }

    fn settle(&mut self, size: Size, settled: &Settlement) {
        if settled.difference == 0 {
            return;
        }
        let recorded = self.round(settled.recorded);
        if let Ok(more) = u64::try_from(settled.difference) {
            self.take(size, 0, recorded, more.min(u32::MAX.into()) as u32);
            return;
        }
        let log = &self.log;
        let Ok(index) = log.binary_search_by_key(&recorded, |entry| entry.recorded) else {
            return;
        };
        let returned = u64::from(self.log[index].units).min(settled.difference.unsigned_abs());
        self.used -= returned;
        self.log[index].units -= returned as u32;
        if self.log[index].units == 0 {
            self.log.remove(index);
        }
    }

    fn expires(&self, size: Size) -> u64 {
        let last = self.log.back();
        last.map_or(0, |last| last.recorded + size.span)
    }

    fn latest(&self) -> u64 {
        self.log.back().map_or(0, |last| last.recorded)
    }

    fn clear(&mut self) {
        self.used = 0;
        self.log.clear();
    }

    fn memory(&self, size: Size) -> u64 {
        size.span + self.grain
    }
}
