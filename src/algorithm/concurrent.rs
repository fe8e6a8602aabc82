//! Limits of how many requests are in progress.

use super::{Algorithm, Settlement, Size, Take, Times};

/// A quota of so many units in progress at once. The span of its size is the lease.
///
/// Each process reports with each call how many units it holds, with those of its grants. So a lost call or answer strands
/// nothing, and a process that dies strands its places until its lease ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Concurrent {
    /// The process that has called last is the last one.
    pub(super) holders: Vec<Holder>,
    /// The units that were dropped by this call, as their leases had ended.
    pub(super) reclaimed: u32,
}

/// The units that a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(super) process: u64,
    /// When its lease ends.
    pub(super) until: u64,
    /// The number of its last call.
    pub(super) number: u64,
    pub(super) units: u32,
}

/// The units that a process holds when it calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holding {
    /// The units of its requests in progress, and of those that were granted.
    pub units: u32,
    /// Whether the store may have more.
    pub releases: bool,
    /// Whether the process receives the nudges of others.
    pub is_notified: bool,
}

/// The requests in progress of all processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// The units in progress, with those that are granted.
    pub held: u32,
    /// The processes that hold them.
    pub processes: u32,
    /// The units that were reclaimed by this call, as their leases had ended.
    pub reclaimed: u32,
}

impl Concurrent {
    /// The units that all processes hold.
    pub(super) fn held(&self) -> u64 {
        self.holders.iter().map(|it| u64::from(it.units)).sum()
    }

    /// The number of the latest call of a process; `None` if it holds no units.
    pub(super) fn call_of(&self, process: u64) -> Option<u64> {
        let mut holders = self.holders.iter();
        holders.find(|it| it.process == process).map(|it| it.number)
    }

    /// A process calls. Returns how many fewer units it holds than before.
    pub(super) fn report(&mut self, take: &Take, until: u64) -> u32 {
        let (process, units) = (take.process, take.holding.units);
        let index = self.holders.iter().position(|it| it.process == process);
        let before = index.map_or(0, |index| self.holders.remove(index).units);
        self.holders.push(Holder {
            process,
            until,
            number: take.number,
            units,
        });
        before.saturating_sub(units)
    }

    /// A call has ended.
    pub(super) fn end_call(&mut self) {
        self.holders.retain(|it| it.units > 0);
        self.reclaimed = 0;
    }

    /// The units that are free.
    pub(super) fn free(&self, size: Size) -> u64 {
        u64::from(size.units).saturating_sub(self.held())
    }

    /// Returns true if there is no room for a request, behind so many units.
    pub(super) fn is_full(&self, size: Size, ahead: u64, cost: u64) -> bool {
        cost > 0 && ahead + cost > self.free(size)
    }

    /// When the first lease ends of the processes other than the one that has called last.
    pub(super) fn first_end(&self) -> Option<u64> {
        let (_, others) = self.holders.split_last()?;
        others.iter().map(|it| it.until).min()
    }

    pub(super) fn occupancy(&self) -> Occupancy {
        let holders = self.holders.iter().filter(|it| it.units > 0);
        let processes = holders.map(|it| it.process >> super::LANE_BITS);
        let mut processes: Vec<u64> = processes.collect();
        processes.sort_unstable();
        processes.dedup();
        Occupancy {
            held: u32::try_from(self.held()).unwrap_or(u32::MAX),
            processes: processes.len() as u32,
            reclaimed: self.reclaimed,
        }
    }
}

impl Algorithm for Concurrent {
    fn drop_expired(&mut self, _size: Size, now: u64) {
        let before = self.held();
        self.holders.retain(|it| now < it.until);
        self.reclaimed = u32::try_from(before - self.held()).unwrap_or(u32::MAX);
    }

    /// A place may be released at any time, so the estimate lies right behind the horizon.
    fn earliest(&self, size: Size, from: u64, ahead: u64, cost: u64, times: &Times) -> u64 {
        match self.is_full(size, ahead, cost) {
            true => from.max(times.beyond()),
            false => from,
        }
    }

    fn fits(&self, size: Size, _at: u64, cost: u32, _times: &Times) -> u64 {
        self.free(size) / u64::from(cost)
    }

    /// The process that has called last holds more units.
    fn take(&mut self, _size: Size, _at: u64, _recorded: u64, units: u32) {
        if let Some(caller) = self.holders.last_mut() {
            caller.units = caller.units.saturating_add(units);
        }
    }

    /// Places are no departures.
    fn take_other(&mut self, _size: Size, _at: u64, _recorded: u64, _units: u32) {}

    /// Processes report what they hold.
    fn settle(&mut self, _size: Size, _settled: &Settlement) {}

    fn expires(&self, _size: Size) -> u64 {
        self.holders.iter().map(|it| it.until).max().unwrap_or(0)
    }

    /// It is not known when places are released.
    fn resets(&self, _size: Size) -> u64 {
        0
    }

    fn latest(&self) -> u64 {
        0
    }

    /// Requests in progress go on.
    fn clear(&mut self) {}
}

/// The number of processes that look for a place again and again if no nudges arrive.
const NEXT: usize = 2;

/// How often a process that is not notified looks for a place, if it is one of the next.
pub(super) const LOOK: u64 = 100_000;

/// When a process looks again for a place that was not released. `before` processes are ahead of it.
pub(super) fn look(holding: Holding, before: usize, now: u64) -> u64 {
    match !holding.is_notified && before < NEXT {
        true => now + LOOK,
        false => now + super::next::LONGEST_SILENCE,
    }
}
