//! What was said of the key while slots are held.

use std::time::Duration;

use tokio::time::Instant;

use super::queue::{Queue, Wakes};
use super::segment::Segment;
use crate::store::Notice;

/// How often to look whether something was said, where the store does not tell: other processes are to stop
/// within a second.
const LOOK: Duration = Duration::from_millis(500);

impl Queue {
    /// Gives back the slots that are not to be used. Who waits keeps its place, and asks anew.
    pub(crate) fn hear(&mut self, notice: Notice, now: Instant, wakes: &mut Wakes) {
        self.heard = self.heard.and(notice);
        let mut is_any_void = false;
        for segment in &mut self.segments {
            let void = segment.void(&mut self.nodes, notice);
            is_any_void |= !void.is_empty();
            self.surplus.extend(void.into_iter().map(|held| held.slot));
        }
        if is_any_void {
            for place in 0..self.segments.len() {
                self.settle(place, now, wakes);
            }
            self.clear_behind();
        }
    }

    /// Something may have been said: the driver is to look.
    pub(crate) fn miss(&mut self) {
        self.missed = self.last_slot().is_some();
    }

    /// Whether to look now; if not, plans when. Slots that come soon are not worth it.
    pub(crate) fn looks(&mut self, now: Instant, is_told: bool) -> bool {
        if std::mem::take(&mut self.missed) {
            self.next_look = None;
            return true;
        }
        if is_told || self.last_slot().is_none_or(|due| due <= now + LOOK) {
            self.next_look = None;
            return false;
        }
        let is_time = self.next_look.is_some_and(|at| at <= now);
        if is_time || self.next_look.is_none() {
            self.next_look = Some(now + LOOK);
        }
        is_time
    }

    /// When the last slot comes that is held.
    fn last_slot(&self) -> Option<Instant> {
        let mut segments = self.segments.iter().rev();
        segments.find_map(Segment::last_slot).map(|held| held.due)
    }
}
