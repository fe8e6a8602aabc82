//! Fixed windows: at most `limit` in each, one window after the other.
//!
//! Windows begin at multiples of their length on the store's clock, or with the first request that
//! comes when none is open. The state is the last window in which anything departs, and how much.
//!
//! A request departs at some time from its slot to its record. So that this is one window, no slot
//! is so late in a window that the record would lie in the next. If the two are far apart, more than
//! half a window, that might never come true; then the window is extended over all that it
//! touches, which is fewer requests than the limit, never more.
//!
//! Whoever gives a slot of this window back just leaves it; the window stays as it is, as others may
//! have their slots in it. Only with the one that opened it, if no other is left, the window before
//! returns.

use super::ledger::Receipt;
use super::{Count, Taken};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FixedWindow {
    limit: u32,
    pub(super) length: u64,
    aligned: bool,
    pub(super) window: Window,
}

/// A window, or several without a boundary between them, and how much departs within.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) count: u64,
}

impl FixedWindow {
    pub(super) fn new(limit: u32, length: u64, aligned: bool) -> Self {
        Self {
            limit,
            length,
            aligned,
            window: Window::default(),
        }
    }

    /// The window after this departure, if it was `before` until then.
    fn after(&self, before: Window, taken: Taken) -> Window {
        let Taken { at, record, cost } = taken;
        let cost = u64::from(cost);
        if at < before.end {
            return Window {
                end: before.end.max(self.end_of(record)),
                count: before.count + cost,
                ..before
            };
        }
        let start = if self.aligned {
            at - at % self.length
        } else {
            at
        };
        Window {
            start,
            end: (start + self.length).max(self.end_of(record)),
            count: cost,
        }
    }

    /// Whether this departure came to the window when others were in it.
    fn has_joined(&self, before: Window, taken: Taken) -> bool {
        before.start == self.window.start && taken.at < before.end
    }

    /// Whether this departure opened the window, which was `before` until then, and nothing else is
    /// in it.
    fn is_alone_since(&self, before: Window, taken: Taken) -> bool {
        taken.at >= before.end && self.after(before, taken) == self.window
    }

    /// Where a window ends at the earliest in which something is recorded at `record`.
    fn end_of(&self, record: u64) -> u64 {
        if self.aligned {
            record - record % self.length + self.length
        } else {
            record + 1
        }
    }
}

impl Count for FixedWindow {
    fn earliest(&self, x: u64, late: u64, cost: u32) -> u64 {
        let Window { start, end, count } = self.window;
        let has_to_fit = late <= self.length / 2;
        let mut x = x.max(start);
        if x < end {
            let has_room = count + u64::from(cost) <= self.limit.into();
            if has_room && !(has_to_fit && x + late >= end) {
                return x;
            }
            x = end;
        }
        if self.aligned && has_to_fit {
            let end = x - x % self.length + self.length;
            if x + late >= end {
                return end;
            }
        }
        x
    }

    fn take(&mut self, taken: Taken) -> Receipt {
        let Window { start, end, count } = self.window;
        self.window = self.after(self.window, taken);
        Receipt::from([start, end, count])
    }

    fn receipts(&self) -> usize {
        3
    }

    fn is_last(&self, taken: Taken, receipt: &[u64]) -> bool {
        before(receipt).is_some_and(|before| {
            self.has_joined(before, taken) || self.is_alone_since(before, taken)
        })
    }

    fn give_back(&mut self, taken: Taken, receipt: &[u64], _now: u64) {
        let is_alone = |before: &Window| self.is_alone_since(*before, taken);
        if let Some(before) = before(receipt).filter(is_alone) {
            self.window = before;
            return;
        }
        let Window { start, end, count } = &mut self.window;
        if (*start..*end).contains(&taken.at) {
            *count = count.saturating_sub(taken.cost.into());
            if *count == 0 {
                *end = *start;
            }
        }
    }

    fn remaining(&self, now: u64, late: u64) -> u32 {
        if self.earliest(now, late, 1) > now {
            return 0;
        }
        if now >= self.window.end {
            return self.limit;
        }
        let left = u64::from(self.limit).saturating_sub(self.window.count);
        u32::try_from(left).unwrap_or(0)
    }

    fn clear(&mut self) {
        self.window = Window::default();
    }

    fn expires(&self) -> u64 {
        self.window.end
    }
}

fn before(receipt: &[u64]) -> Option<Window> {
    match *receipt {
        [start, end, count] => Some(Window { start, end, count }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(window: &mut FixedWindow, x: u64, late: u64, cost: u32) -> (Taken, Receipt) {
        let at = window.earliest(x, late, cost);
        let taken = Taken {
            at,
            record: at + late,
            cost,
        };
        let receipt = window.take(taken);
        (taken, receipt)
    }

    fn slots(window: &mut FixedWindow, x: u64, count: usize) -> Vec<u64> {
        (0..count).map(|_| take(window, x, 5, 1).0.at).collect()
    }

    #[test]
    fn aligned_windows_begin_at_multiples_of_their_length() {
        let mut window = FixedWindow::new(2, 100, true);
        assert_eq!(
            slots(&mut window, 1_030, 5),
            [1_030, 1_030, 1_100, 1_100, 1_200]
        );
        assert_eq!(slots(&mut window, 1_270, 2), [1_270, 1_300]);
    }

    #[test]
    fn other_windows_begin_with_their_first_request() {
        let mut window = FixedWindow::new(2, 100, false);
        assert_eq!(
            slots(&mut window, 1_030, 5),
            [1_030, 1_030, 1_130, 1_130, 1_230]
        );
        assert_eq!(slots(&mut window, 1_400, 3), [1_400, 1_400, 1_500]);
    }

    #[test]
    fn no_slot_reaches_into_the_next_window() {
        let mut aligned = FixedWindow::new(2, 100, true);
        assert_eq!(aligned.earliest(1_094, 5, 1), 1_094);
        assert_eq!(aligned.earliest(1_095, 5, 1), 1_100);
        take(&mut aligned, 1_000, 5, 1);
        assert_eq!(aligned.earliest(1_094, 5, 1), 1_094);
        assert_eq!(aligned.earliest(1_095, 5, 1), 1_100);
        let mut other = FixedWindow::new(2, 100, false);
        take(&mut other, 1_030, 5, 1);
        assert_eq!(other.earliest(1_124, 5, 1), 1_124);
        assert_eq!(other.earliest(1_125, 5, 1), 1_130);
    }

    #[test]
    fn a_request_that_may_be_late_by_windows_has_them_all() {
        for aligned in [true, false] {
            let mut window = FixedWindow::new(2, 100, aligned);
            let of = |window: &mut FixedWindow| take(window, 1_000, 250, 1).0.at;
            assert_eq!([of(&mut window), of(&mut window)], [1_000, 1_000]);
            let next = of(&mut window);
            assert!(next > 1_250, "{next}");
        }
    }

    #[test]
    fn what_is_given_back_leaves_no_trace_if_it_was_last() {
        let mut window = FixedWindow::new(2, 100, true);
        slots(&mut window, 1_000, 1);
        let first = window.clone();
        let taken: Vec<_> = (0..4).map(|_| take(&mut window, 1_000, 5, 1)).collect();
        for (taken, receipt) in taken.iter().rev() {
            assert!(window.is_last(*taken, receipt.as_slice()));
            window.give_back(*taken, receipt.as_slice(), 1_000);
        }
        assert_eq!(window, first);
    }

    #[test]
    fn what_is_given_back_from_the_middle_makes_room_in_its_window() {
        let mut window = FixedWindow::new(3, 100, true);
        let (taken, receipt) = take(&mut window, 1_000, 5, 1);
        take(&mut window, 1_000, 5, 2);
        assert_eq!(window.remaining(1_010, 0), 0);
        window.give_back(taken, receipt.as_slice(), 1_010);
        assert_eq!(window.remaining(1_010, 0), 1);
        take(&mut window, 1_100, 5, 3);
        window.give_back(taken, receipt.as_slice(), 1_110);
        assert_eq!(window.remaining(1_110, 0), 0);
    }

    #[test]
    fn a_window_stays_as_long_as_anyone_may_depart_in_it() {
        for aligned in [true, false] {
            let mut window = FixedWindow::new(3, 100, aligned);
            let (first, receipt_of_first) = take(&mut window, 1_000, 5, 1);
            let (second, receipt_of_second) = take(&mut window, 1_050, 60, 1);
            take(&mut window, 1_050, 60, 1);
            window.give_back(first, receipt_of_first.as_slice(), 1_051);
            window.give_back(second, receipt_of_second.as_slice(), 1_051);
            let next = window.earliest(1_052, 60, 3);
            assert!(
                next > 1_110,
                "the third may depart until 1110, these at {next}"
            );
        }
    }

    #[test]
    fn a_window_that_all_have_left_is_none() {
        let mut window = FixedWindow::new(2, 100, false);
        let (first, receipt_of_first) = take(&mut window, 1_000, 5, 1);
        let (second, receipt_of_second) = take(&mut window, 1_000, 5, 1);
        window.give_back(first, receipt_of_first.as_slice(), 1_010);
        window.give_back(second, receipt_of_second.as_slice(), 1_010);
        assert_eq!(window.expires(), 1_000);
        assert_eq!(window.earliest(1_099, 5, 2), 1_099);
    }

    #[test]
    fn counts_what_remains_of_the_window() {
        let mut window = FixedWindow::new(3, 100, true);
        assert_eq!((window.remaining(1_000, 0), window.expires()), (3, 0));
        take(&mut window, 1_010, 5, 2);
        assert_eq!((window.remaining(1_099, 0), window.expires()), (1, 1_100));
        assert_eq!(window.remaining(1_100, 0), 3);
        take(&mut window, 1_010, 5, 3);
        assert_eq!((window.remaining(1_010, 0), window.expires()), (0, 1_200));
    }
}
