//! What was said of the key while slots are held.

use std::time::Duration;

use tokio::time::Instant;

use super::held::Held;
use super::queue::{Queue, Wakes};
use crate::recovery::LONGEST_HEARING;
use crate::store::Notice;

/// How often to look whether something was said, where the store does not tell: other processes are to stop
/// within a second.
const LOOK: Duration = Duration::from_millis(500);

/// The same, until a look has been answered that has to be.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// When a pause is over before its time, how long to wait until all processes have given back the slots that
/// lay behind it: who asks sooner gets one behind those.
pub(crate) const SETTLING: Duration = Duration::from_millis(150);

impl Queue {
    /// Gives back the slots that are not to be used. Who waits keeps its place, and asks anew.
    pub(crate) fn hear(&mut self, mut notice: Notice, now: Instant, wakes: &mut Wakes) {
        if notice.is_quarantine() {
            // A life may be said to begin later than it does.
            notice.since = notice.since.min(notice.now);
        }
        self.heard = self.heard.and(notice);
        if notice.until > 0 {
            self.heard_at = self.calls;
        }
        if notice.is_resumption() || notice.is_quarantine() {
            self.settling = Some(now + SETTLING);
        }
        let mut is_any_void = false;
        for segment in &mut self.segments {
            let is_void =
                |held: &Held| notice.is_quarantine() || notice.voids(held.slot.at, held.reserved);
            let void = segment.void(&mut self.nodes, is_void);
            is_any_void |= !void.is_empty();
            if !notice.is_quarantine() {
                self.surplus.extend(void.into_iter().map(|held| held.slot));
            }
        }
        if notice.is_quarantine() {
            // The store has forgotten them: given back, they would be handed out uncharged.
            self.surplus.clear();
        }
        if is_any_void {
            for place in 0..self.segments.len() {
                self.settle(place, now, wakes);
            }
            self.clear_behind();
        }
    }

    /// The slots that are held are of a life that is over: nobody uses them, or gives them back.
    pub(crate) fn recall(&mut self, now: Instant, wakes: &mut Wakes) {
        self.surplus.clear();
        for segment in &mut self.segments {
            drop(segment.void(&mut self.nodes, |_| true));
        }
        for place in 0..self.segments.len() {
            self.settle(place, now, wakes);
        }
        self.clear_behind();
    }

    /// Where recovery is strict, nobody uses what is held who has not heard from the store for long. This was told
    /// of all that was said until then.
    pub(crate) fn assure(&mut self, told: Option<Instant>, now: Instant, wakes: &mut Wakes) {
        if let Some(told) = told {
            self.heard_from(told);
        }
        if self.is_deaf(now) {
            self.recall(now, wakes);
            self.assured = None;
        }
    }

    /// The store has been heard from, as late as that.
    pub(super) fn heard_from(&mut self, at: Instant) {
        if self.is_strict {
            self.assured = self.assured.max(Some(at));
        }
    }

    /// Whether all may be void that is held, and nobody here was told.
    pub(super) fn is_deaf(&self, now: Instant) -> bool {
        self.assured.is_some_and(|at| now > at + LONGEST_HEARING)
    }

    /// A look has shown how the key stands.
    pub(crate) fn seen(&mut self, notice: Notice, now: Instant, wakes: &mut Wakes) {
        let was_missed = std::mem::take(&mut self.missed);
        let was_paused = notice.now < self.heard.paused;
        self.next_look = Some(now + LOOK);
        if notice.until == 0 && (was_missed || was_paused) {
            // A pause may have been over before its time, and nobody told.
            self.heard.paused = 0;
            self.hear(Notice::resumption(notice.now), now, wakes);
        } else {
            self.hear(notice, now, wakes);
        }
    }

    /// Something may have been said: the driver is to look, until it is answered.
    pub(crate) fn miss(&mut self) {
        self.missed = self.last_slot().is_some();
        self.tests = self.missed;
        self.next_look = None;
    }

    /// Whether to look now; if not, plans when. Slots that come soon are not worth it. Who cannot look now, as
    /// the store is out or has not answered the last look, does so later.
    pub(crate) fn looks(&mut self, now: Instant, is_told: bool, can_look: bool) -> bool {
        if !self.missed && (is_told || self.last_slot().is_none_or(|held| held.due <= now + LOOK)) {
            self.next_look = None;
            return false;
        }
        let is_time = self.next_look.is_none_or(|at| at <= now);
        if is_time {
            let pause = if self.missed { LOOK_AGAIN } else { LOOK };
            self.next_look = Some(now + pause);
            self.tests |= can_look;
        }
        is_time && can_look
    }

    /// Whether others still give slots back, and nobody is to be answered at once.
    pub(super) fn settles(&mut self, now: Instant) -> bool {
        if self.settling.is_some_and(|until| now >= until) {
            self.settling = None;
        }
        self.settling.is_some()
    }
}
