//! The generic cell rate algorithm (ITU-T I.371, annex A), spacing and the leaky bucket.

use super::{Algorithm, Settlement, Terms, Unit, span};

/// A quota of one unit per `interval`, of which `burst` may depart at once. In microseconds.
///
/// `due` is the theoretical arrival time, counted from the latest moment of each departure.
///
/// A request of c units may depart from `due + (c - burst) * interval` on. If it is recorded at r, `due` becomes
/// `max(due, r) + c * interval`. So in any span of length s, at most `burst + s / interval` units depart, however
/// much earlier than it is recorded each of them does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Gcra {
    pub(super) unit: Unit,
    /// The most that one request may cost.
    pub(super) burst: u32,
    pub(super) interval: u64,
    /// Whether a request of c units keeps c intervals free behind it, and none before it.
    pub(super) spaced: bool,
    pub(super) due: u64,
    /// The latest recorded time: a refund is reduced by what has elapsed until then.
    pub(super) last: u64,
}

impl Gcra {
    pub(crate) fn new(burst: u32, interval: u64, spaced: bool) -> Self {
        Self {
            burst,
            interval,
            spaced,
            ..Self::default()
        }
    }

    /// Takes the numbers of another quota. It counts as if its burst were used up at the last departure, at most.
    pub(super) fn continue_as(&mut self, quota: &Self) {
        if self.interval != quota.interval {
            self.due = self
                .due
                .min(self.last + span(quota.burst.into(), quota.interval));
        }
        (self.burst, self.interval, self.spaced) = (quota.burst, quota.interval, quota.spaced);
    }

    /// How much earlier than its theoretical arrival, after itself, a request of this cost may depart.
    #[inline]
    fn tolerance(&self, cost: u64) -> u64 {
        let units = if self.spaced { cost } else { self.burst.into() };
        span(units, self.interval)
    }
}

impl Algorithm for Gcra {
    #[inline]
    fn earliest(&self, from: u64, ahead: u64, cost: u64, _terms: &Terms) -> u64 {
        let ready = self.due + span(ahead + cost, self.interval);
        from.max(ready.saturating_sub(self.tolerance(cost)))
    }

    #[inline]
    fn fits(&self, at: u64, cost: u32, terms: &Terms) -> u64 {
        let due = self.due.max(terms.recorded(at));
        let cost = u64::from(cost);
        let room = (at + self.tolerance(cost)).saturating_sub(due);
        (room / span(cost, self.interval)).max(1)
    }

    #[inline]
    fn take(&mut self, _at: u64, recorded: u64, units: u32) {
        self.due = self.due.max(recorded) + span(units.into(), self.interval);
        self.last = self.last.max(recorded);
    }

    fn settle(&mut self, settled: &Settlement) {
        let cost = span(settled.difference.unsigned_abs(), self.interval);
        if settled.difference > 0 {
            // The departure may have cost nothing so far.
            self.due = self.due.max(settled.recorded) + cost;
            self.last = self.last.max(settled.recorded);
        } else if settled.recorded <= self.last {
            let elapsed = self.last - settled.recorded;
            self.due = self.due.saturating_sub(cost.saturating_sub(elapsed));
        }
    }

    fn expires(&self) -> u64 {
        self.due.max(self.last)
    }

    fn resets(&self) -> u64 {
        self.due
    }

    fn clear(&mut self) {
        (self.due, self.last) = (0, 0);
    }

    fn memory(&self) -> u64 {
        span(self.burst.into(), self.interval)
    }
}
