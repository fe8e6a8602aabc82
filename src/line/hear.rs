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

/// How long the store may be silent, where recovery is strict, until it is put to the test: long before all that is
/// held is of no use.
const LONG_SILENCE: Duration = Duration::from_millis(1_500);

/// When a pause is over before its time, how long to wait until all processes have given back the slots that
/// lay behind it: who asks sooner gets one behind those.
pub(crate) const SETTLING: Duration = Duration::from_millis(150);

impl Queue {
    /// Gives back the slots that are not to be used. Who waits keeps its place, and asks anew.
    pub(crate) fn hear(&mut self, mut notice: Notice, now: Instant, wakes: &mut Wakes) {
        if notice.is_quarantine() {
            let life = notice.since;
            if life > 0 && life <= self.life {
                // It is known already, but for how long it rests.
                notice.until = 0;
            } else {
                self.recall(self.life.max(life), now, wakes);
            }
            // A life may be said to begin later than it does.
            notice.since = life.min(notice.now);
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
            let is_void = |held: &Held| notice.voids(held.slot.at, held.reserved);
            let void = segment.void(&mut self.nodes, is_void);
            is_any_void |= !void.is_empty();
            self.surplus.extend(void.into_iter().map(|held| held.slot));
        }
        if is_any_void {
            self.settle_all(now, wakes);
        }
    }

    /// A pause has ended before its time, and was believed in until now: slots that were asked for meanwhile, and are
    /// still, lie behind its end though the store may have known better.
    pub(crate) fn ask_anew(&mut self, now: Instant, wakes: &mut Wakes) {
        self.outdated = self.calls;
        self.settling = Some(now + SETTLING);
        for segment in &mut self.segments {
            let outdated = segment.void(&mut self.nodes, |_| true).into_iter();
            let same_life = outdated.filter(|held| held.life == self.life);
            self.surplus.extend(same_life.map(|held| held.slot));
        }
        self.settle_all(now, wakes);
    }

    /// From now on, recovery is strict, in the life that began then; or not, if there is none.
    pub(super) fn set_strict(&mut self, life: Option<u64>) {
        self.is_strict = life.is_some();
        self.life = life.unwrap_or(0);
        (self.assured, self.untested) = (None, None);
    }

    /// Another life has begun: nobody uses what was taken from the former, or gives it back, as it would be handed
    /// out uncharged.
    pub(crate) fn recall(&mut self, life: u64, now: Instant, wakes: &mut Wakes) {
        self.life = life;
        self.surplus.clear();
        for segment in &mut self.segments {
            drop(segment.void(&mut self.nodes, |_| true));
        }
        self.settle_all(now, wakes);
    }

    /// Where recovery is strict: this was told of all that was said until then. It says nothing of what was said
    /// while nobody was told, until that has been tested.
    pub(crate) fn assure(&mut self, told: Option<Instant>) {
        if let Some(told) = told
            && self.untested.is_none()
        {
            self.heard_from(told);
        }
    }

    /// The store has been heard from, as late as that.
    pub(super) fn heard_from(&mut self, at: Instant) {
        if self.is_strict {
            self.assured = self.assured.max(Some(at));
        }
    }

    /// Whether all may be void that is held, and nobody here was told: nobody uses it before the next answer.
    pub(super) fn is_deaf(&self, now: Instant) -> bool {
        self.assured.is_some_and(|at| now > at + LONGEST_HEARING)
    }

    /// The store is out, or refuses. Whoever has not heard from it for long cannot wait until it has, for what is
    /// held.
    pub(crate) fn give_up_if_deaf(&mut self, now: Instant, wakes: &mut Wakes) {
        if self.is_deaf(now) {
            self.recall(self.life, now, wakes);
            self.assured = None;
        }
    }

    /// When the store is to be put to the test if it has not been heard from until then; unless it is looked for
    /// in any case.
    pub(super) fn next_test(&self) -> Option<Instant> {
        self.silent_from().filter(|_| self.next_look.is_none())
    }

    /// Since when nothing was heard for so long that the store is to be put to the test.
    fn silent_from(&self) -> Option<Instant> {
        let heard = self.assured.filter(|_| self.last_slot().is_some());
        heard.map(|at| at + LONG_SILENCE)
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
        self.untested = self.is_strict.then_some(self.calls);
        self.next_look = None;
    }

    /// Whether to look now; if not, plans when. Slots that come soon are not worth it. Who cannot look now, as
    /// the store is out or has not answered the last look, does so later.
    pub(crate) fn looks(&mut self, now: Instant, is_told: bool, can_look: bool) -> bool {
        let is_silent = self.silent_from().is_some_and(|from| now >= from);
        let comes_soon = || self.last_slot().is_none_or(|held| held.due <= now + LOOK);
        if !self.missed && !is_silent && (is_told || comes_soon()) {
            self.next_look = None;
            return false;
        }
        let is_time = self.next_look.is_none_or(|at| at <= now);
        if is_time {
            let is_urgent = self.missed || is_silent;
            let pause = if is_urgent { LOOK_AGAIN } else { LOOK };
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
