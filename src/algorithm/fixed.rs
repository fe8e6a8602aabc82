//! The fixed window: at most N units in each window, one window after the other.

use super::{Algorithm, Settlement, Size, Times, span};

/// A fixed window quota and its current window, in microseconds.
///
/// A window that begins with a request ends a whole window after the latest moment at which that request departs, and
/// no request of it departs later than a whole window after the earliest such moment: wherever the window really
/// began, it holds all of them.
///
/// No request is granted so late that it could depart in the next window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fixed {
    /// Windows begin at multiples of their length. Otherwise a window begins with the first request after the
    /// last one.
    pub(super) aligned: bool,
    /// Nothing may depart earlier.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) count: u32,
    /// The latest recorded time in this window.
    pub(super) last: u64,
}

impl Fixed {
    /// Continues with another window. The recorded units count for the window of the last one. The next window does not
    /// begin earlier than a whole one from now: this one may have begun within an earlier window under that quota.
    pub(super) fn continue_with(&mut self, Size { span: window, .. }: Size, now: u64) {
        if self.count == 0 {
            return;
        }
        if self.aligned {
            self.start = self.last - self.last % window;
            self.end = self.start + window;
        } else {
            let is_over = self.last + window <= now;
            self.end = if is_over { self.last } else { now } + window;
        }
    }

    fn is_current(&self, at: u64) -> bool {
        at < self.end
    }

    /// The units that the window of this time has left.
    fn free(&self, size: Size, at: u64) -> u64 {
        let used = if self.is_current(at) { self.count } else { 0 };
        size.units.saturating_sub(used).into()
    }

    /// The first time at which a request that departs then may be too late for its window.
    fn closes(&self, size: Size, at: u64) -> Option<u64> {
        if self.aligned {
            Some(at - at % size.span + size.span)
        } else {
            // The first request may have departed at the start.
            self.is_current(at).then_some(self.start + size.span)
        }
    }
}

impl Algorithm for Fixed {
    fn earliest(&self, size: Size, from: u64, ahead: u64, cost: u64, times: &Times) -> u64 {
        let most = u64::from(size.units);
        let mut units = ahead + cost;
        let mut at = from.max(self.start);
        loop {
            // If the guard is longer than a window, requests depart only at its beginning, and count in the last one that they
            // can reach.
            let begins = self.aligned && at.is_multiple_of(size.span);
            let is_late = |closes: &u64| times.recorded(at) >= *closes;
            if let Some(closes) = self.closes(size, at).filter(is_late)
                && !begins
            {
                at = if self.aligned { closes } else { self.end };
                continue;
            }
            let free = self.free(size, at);
            if units <= free {
                return at;
            }
            if free == most {
                let rounds = (units - 1) / most;
                return if self.aligned {
                    at - at % size.span + span(rounds, size.span)
                } else {
                    at + span(rounds, size.span + times.lateness)
                };
            }
            if units > most {
                units -= free;
            }
            at = self.end;
        }
    }

    fn fits(&self, size: Size, at: u64, cost: u32, _times: &Times) -> u64 {
        self.free(size, at) / u64::from(cost)
    }

    fn take(&mut self, size: Size, at: u64, recorded: u64, units: u32) {
        if !self.is_current(if self.aligned { recorded } else { at }) {
            (self.start, self.end) = if self.aligned {
                let start = recorded - recorded % size.span;
                (start, start + size.span)
            } else {
                (at, recorded + size.span)
            };
            (self.count, self.last) = (0, 0);
        }
        self.count = self.count.saturating_add(units);
        self.last = self.last.max(recorded);
    }

    fn settle(&mut self, size: Size, settled: &Settlement) {
        let recorded = settled.recorded;
        let in_window = recorded >= self.start + u64::from(!self.aligned);
        if settled.difference > 0 && in_window {
            // The departure may have cost nothing so far.
            let units = u32::try_from(settled.difference).unwrap_or(u32::MAX);
            self.take(size, recorded, recorded, units);
            return;
        }
        if !in_window || recorded > self.last {
            return;
        }
        let returned = u32::try_from(-settled.difference).unwrap_or(u32::MAX);
        self.count = self.count.saturating_sub(returned);
        if self.aligned {
            return;
        }
        if self.count == 0 {
            self.end = self.start;
        } else if recorded + size.span == self.end {
            // The request that began the window may not have departed: the window begins with another one, at the
            // latest with the last.
            self.end = self.last + size.span;
        }
    }

    fn expires(&self, _size: Size) -> u64 {
        self.end
    }

    fn resets(&self, _size: Size) -> u64 {
        if self.count > 0 { self.end } else { 0 }
    }

    fn latest(&self) -> u64 {
        self.last
    }

    fn clear(&mut self) {
        let aligned = self.aligned;
        *self = Self {
            aligned,
            ..Self::default()
        };
    }
}
