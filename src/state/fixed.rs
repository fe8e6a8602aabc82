//! The fixed window: at most N units in each window, one window after the other.

use super::{Algorithm, Settlement, Terms, span};

/// A fixed window quota and its current window, in microseconds.
///
/// A window that begins with a request ends a whole window after the latest moment at which that request departs.
/// No request is granted so late that it could depart in the next window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fixed {
    pub(super) limit: u32,
    pub(super) window: u64,
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
    pub(crate) fn new(limit: u32, window: u64, aligned: bool) -> Self {
        Self {
            limit,
            window,
            aligned,
            start: 0,
            end: 0,
            count: 0,
            last: 0,
        }
    }

    /// The end of the window that a request at this time belongs to, unless it begins one, and the units that it has
    /// left.
    fn window_at(&self, at: u64) -> (Option<u64>, u64) {
        let is_current = at < self.end;
        let used = if is_current { self.count } else { 0 };
        let free = u64::from(self.limit.saturating_sub(used));
        let end = if self.aligned {
            Some(at - at % self.window + self.window)
        } else {
            is_current.then_some(self.end)
        };
        (end, free)
    }
}

impl Algorithm for Fixed {
    fn earliest(&self, from: u64, ahead: u64, cost: u64, terms: &Terms) -> u64 {
        let most = u64::from(self.limit);
        let mut units = ahead + cost;
        let mut at = from.max(self.start);
        loop {
            let (end, free) = self.window_at(at);
            let is_late = end.is_some_and(|end| terms.recorded(at) >= end);
            let begins = self.aligned && at % self.window == 0;
            if !is_late || begins {
                if units <= free {
                    return at;
                }
                if free == most {
                    let step = self.window + if self.aligned { 0 } else { terms.hold };
                    return at + span((units - 1) / most, step);
                }
                if units > most {
                    units -= free;
                }
            }
            at = end.unwrap_or(at);
        }
    }

    fn fits(&self, at: u64, cost: u32, _terms: &Terms) -> u64 {
        self.window_at(at).1 / u64::from(cost)
    }

    fn take(&mut self, at: u64, recorded: u64, units: u32) {
        let begins = if self.aligned {
            recorded >= self.end
        } else {
            at >= self.end
        };
        if begins {
            let start = if self.aligned {
                recorded - recorded % self.window
            } else {
                at
            };
            let end = if self.aligned { start } else { recorded } + self.window;
            *self = Self {
                start,
                end,
                count: units,
                last: recorded,
                ..*self
            };
        } else {
            self.count += units;
            self.last = self.last.max(recorded);
        }
    }

    fn settle(&mut self, settled: &Settlement) {
        let in_window = if self.aligned {
            settled.recorded >= self.start
        } else {
            settled.recorded > self.start
        };
        if !in_window || settled.recorded > self.last {
            return;
        }
        let Ok(returned) = u32::try_from(-settled.difference) else {
            self.count = self.count.saturating_add(settled.difference as u32);
            return;
        };
        self.count = self.count.saturating_sub(returned);
        let opened = settled.recorded + self.window == self.end;
        if !self.aligned && opened {
            // The request that began the window may not have departed: the window begins with another one, at the
            // latest with the last.
            self.end = if self.count == 0 {
                self.start
            } else {
                self.last + self.window
            };
        }
    }

    fn expires(&self) -> u64 {
        self.end
    }

    fn resets(&self) -> u64 {
        if self.count > 0 { self.end } else { 0 }
    }

    fn clear(&mut self) {
        *self = Self::new(self.limit, self.window, self.aligned);
    }

    fn memory(&self) -> u64 {
        self.window
    }
}
