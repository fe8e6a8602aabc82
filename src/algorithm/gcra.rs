//! The generic cell rate algorithm (ITU-T I.371, annex A), spacing and the leaky bucket.

use super::{Algorithm, Settlement, Size, Times, span};

/// A quota of one unit per interval, which is the span of its size. A burst of all its units may depart at once.
///
/// `due` is the theoretical arrival time, counted from the latest moment of each departure.
///
/// A request of c units may depart from `due + (c - burst) * interval` on. If it is recorded at r, `due` becomes
/// `max(due, r) + c * interval`. So in any span of length s, at most `burst + s / interval` units depart, however
/// much earlier than it is recorded each of them does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Gcra {
    /// Whether a request of c units keeps c intervals free behind it, and none before it.
    pub(super) spaced: bool,
    pub(super) due: u64,
    /// The latest recorded time: a refund is reduced by what has elapsed until then.
    pub(super) last: u64,
}

impl Gcra {
    /// Begins with another interval. As many units of the burst as before are used at the last departure, but not more than it
    /// has. Spacing keeps intervals free behind the last request alone, not behind a burst.
    pub(super) fn continue_with(&mut self, former: u64, size: Size, spaced: bool) {
        let most = match spaced && !self.spaced {
            true => size.span,
            false => self.memory(size),
        };
        if let Some(used) = self.due.checked_sub(self.last) {
            let used = u128::from(used) * u128::from(size.span);
            let used = used.div_ceil(former.max(1).into());
            self.due = self.last + used.min(most.into()) as u64;
        }
    }

    /// How much earlier than its theoretical arrival, after itself, a request of this cost may depart.
    #[inline]
    fn tolerance(&self, size: Size, cost: u64) -> u64 {
        let burst = u64::from(size.units);
        span(if self.spaced { cost } else { burst }, size.span)
    }
}

impl Algorithm for Gcra {
    #[inline]
    fn earliest(&self, size: Size, from: u64, ahead: u64, cost: u64, _times: &Times) -> u64 {
        let ready = self.due + span(ahead + cost, size.span);
        from.max(ready.saturating_sub(self.tolerance(size, cost)))
    }

    #[inline]
    fn fits(&self, size: Size, at: u64, cost: u32, times: &Times) -> u64 {
        let due = self.due.max(times.recorded(at));
        let cost = u64::from(cost);
        let room = (at + self.tolerance(size, cost)).saturating_sub(due);
        (room / span(cost, size.span)).max(1)
    }

    #[inline]
    fn take(&mut self, size: Size, _at: u64, recorded: u64, units: u32) {
        self.due = self.due.max(recorded) + span(units.into(), size.span);
        self.last = self.last.max(recorded);
    }

    fn take_other(&mut self, size: Size, at: u64, recorded: u64, units: u32) {
        let (full, free) = (self.memory(size), span(units.into(), size.span));
        // Spacing keeps intervals free behind the last request alone.
        let most = if self.spaced { free.min(full) } else { full };
        // A charge may be for an earlier departure.
        let most = self.due.max(recorded.max(self.last) + most);
        self.take(size, at, recorded, units);
        self.due = self.due.min(most);
    }

    fn settle(&mut self, size: Size, settled: &Settlement) {
        let cost = span(settled.difference.unsigned_abs(), size.span);
        if settled.difference > 0 {
            // The departure may have cost nothing so far.
            self.due = self.due.max(settled.recorded) + cost;
            self.last = self.last.max(settled.recorded);
        } else if settled.recorded <= self.last {
            let elapsed = self.last - settled.recorded;
            self.due = self.due.saturating_sub(cost.saturating_sub(elapsed));
        }
    }

    fn expires(&self, _size: Size) -> u64 {
        self.due.max(self.last)
    }

    fn resets(&self, _size: Size) -> u64 {
        self.due
    }

    fn latest(&self) -> u64 {
        self.last
    }

    fn clear(&mut self) {
        (self.due, self.last) = (0, 0);
    }

    fn memory(&self, size: Size) -> u64 {
        span(size.units.into(), size.span)
    }
}
