//! Whether a state is still the one that it was: a key has a [`Life`], which ends where its state is lost.

#[cfg(test)]
mod tests;

use smallvec::SmallVec;

use super::super::hold::{Hold, Kind};
use super::super::{Count, micros};
use super::{Counter, Ledger, Outcome};
use crate::quota::HORIZON;

/// For how much longer a life is remembered than anything can count: calls may be under way for long.
const SLACK: u64 = 6_000_000;

/// Of how many processes it is remembered what they were told last.
pub(in super::super) const MARKS: usize = 8;

/// Nothing is remembered for longer.
const FAR: u64 = 3 * micros(HORIZON);

/// Which state of a key it is, where recovery is [strict](crate::Recovery::Strict), and how far that has come.
///
/// What was handed out under one life is not to be used under the next, nor to be given back to it. Both numbers
/// are times on the store's clock, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Life {
    /// When it began, or later: than any that is known to have begun before.
    pub start: u64,
    /// Grows with each call that hands out slots: when the last one did, or later.
    pub version: u64,
}

impl Life {
    /// The one that began then, at this version.
    #[must_use]
    pub fn new(start: u64, version: u64) -> Self {
        Self { start, version }
    }
}

/// What a process knows of a key that its store has to know as well, unless it has lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Evidence {
    /// The last that is known, while anything counts that was handed out under it.
    pub life: Option<Life>,
    /// How long nothing may depart if the store does not know of it, in microseconds: until whatever departed
    /// before counts no longer.
    pub span: u64,
    /// By how much a clock has to have been set back for that to be a loss, in microseconds.
    pub tolerance: u64,
    /// Who says so: any number but 0 that no other process has, for as long as it lives; or 0 if nothing is to be
    /// remembered of it.
    pub process: u32,
    /// The [version](Life::version) of that life by which slots were last handed out to this process; 0 if none were.
    pub granted: u64,
}

impl Evidence {
    /// Nothing is known, or that there was this life.
    #[must_use]
    pub fn new(life: Option<Life>, span: u64, tolerance: u64) -> Self {
        Self {
            life,
            span,
            tolerance,
            process: 0,
            granted: 0,
        }
    }

    /// The same, by this process, to which slots were last handed out at that version.
    #[must_use]
    pub fn of_process(self, process: u32, granted: u64) -> Self {
        Self {
            process,
            granted,
            ..self
        }
    }

    /// The same, of a store that has several clocks.
    #[cfg(feature = "redis")]
    pub(crate) fn whatever_the_clock(self) -> Self {
        Self {
            tolerance: FAR,
            ..self
        }
    }
}

/// A life as the state has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Lived {
    pub(in super::super) life: Life,
    /// Until when nothing departs, or departed, as another life was lost; 0 if none was.
    pub(in super::super) rest: u64,
    /// For how long to remember it.
    pub(in super::super) keep: u64,
    /// Whether all who may hold slots of another life were told of this one, if it began with a rest.
    pub(in super::super) is_told: bool,
    /// Some processes, and at which version slots were last handed out to them: those of the latest.
    pub(in super::super) marks: SmallVec<[(u32, u64); 2]>,
    /// For each quota of which less is recorded than was, until when that would have counted; else 0.
    pub(in super::super) torn: SmallVec<[u64; 1]>,
    /// How long a key rests, and who asks, in a call with evidence.
    asked: Option<(u64, u32)>,
}

impl Lived {
    pub(in super::super) fn new(life: Life, rest: u64, keep: u64) -> Self {
        Self {
            life,
            rest,
            keep,
            is_told: false,
            marks: SmallVec::new(),
            torn: SmallVec::new(),
            asked: None,
        }
    }

    /// Whether anything that is gone would still count then.
    fn is_torn(&self, now: u64) -> bool {
        self.torn.iter().any(|&until| until > now)
    }

    /// Whether it does not know of what was handed out to a process, though it would.
    fn has_forgotten(&self, evidence: &Evidence) -> bool {
        let mark = self.marks.iter().find(|mark| mark.0 == evidence.process);
        match mark {
            _ if evidence.process == 0 || evidence.granted == 0 => false,
            Some(&(_, version)) => version < evidence.granted,
            // Others may have taken its place since.
            None => {
                let oldest = self.marks.iter().map(|&(_, version)| version).min();
                self.marks.len() < MARKS || oldest <= Some(evidence.granted)
            }
        }
    }

    fn mark(&mut self, process: u32) {
        let version = self.life.version;
        if process == 0 {
            return;
        }
        if let Some(mark) = self.marks.iter_mut().find(|mark| mark.0 == process) {
            mark.1 = version;
        } else if self.marks.len() < MARKS {
            self.marks.push((process, version));
        } else if let Some(oldest) = self.marks.iter_mut().min_by_key(|mark| mark.1) {
            *oldest = (process, version);
        }
    }
}

impl Ledger {
    /// Whether the state lacks something of which there is evidence, or was written by a clock that has been set
    /// back; or whether the store knows of nothing from before `born`, not long ago. If so, another life begins, in
    /// which nothing departs for the span, and all have to be told: until that has been done, it rests for as long
    /// from each call on. Whoever gets slots in the same call knows of the life.
    pub(crate) fn doubt(&mut self, now: u64, evidence: &Evidence, born: u64) -> bool {
        self.refresh(now);
        let known = evidence.life;
        let is_lost = match (self.lived.as_deref(), known) {
            (None, _) => known.is_some(),
            (Some(lived), _) if lived.life.version > now + evidence.tolerance => true,
            (Some(lived), _) if lived.is_torn(now + evidence.tolerance) => true,
            (Some(_), None) => false,
            (Some(lived), Some(known)) if lived.life.start == known.start => {
                lived.life.version < known.version || lived.has_forgotten(evidence)
            }
            // Where it began as something was missed, nobody has to miss that again.
            (Some(lived), Some(known)) => lived.rest == 0 || lived.life.start < known.start,
        };
        if is_lost {
            self.clear();
            self.begin(now, known.map_or(0, |known| known.start));
            self.set_rest(now, now + evidence.span);
        }
        let mut is_untold = is_lost;
        if let Some(lived) = &self.lived
            && !is_lost
            && lived.rest > 0
            && !lived.is_told
        {
            is_untold = true;
            let rest = lived.rest.max(now + evidence.span);
            self.set_rest(now, rest);
        }
        if self.lived.is_none() {
            self.begin(now, 0);
            let until = born.min(now) + evidence.span;
            if until > now {
                is_untold = true;
                self.free.clear();
                self.set_rest(now, until);
            }
        }
        if let Some(lived) = &mut self.lived {
            lived.asked = Some((evidence.span, evidence.process));
        }
        is_untold
    }

    /// All who may hold slots were told which life it is.
    pub(crate) fn tell(&mut self) {
        if let Some(lived) = &mut self.lived {
            lived.is_told = true;
        }
    }

    /// Which life it is, if recovery is strict.
    pub(crate) fn life(&self) -> Option<Life> {
        self.lived.as_ref().map(|lived| lived.life)
    }

    /// Whether it is the life that began then.
    pub(super) fn is_of(&self, now: u64, start: u64) -> bool {
        let lived = self.lived.as_deref().filter(|lived| now <= lived.keep);
        lived.is_some_and(|lived| lived.life.start == start)
    }

    /// Until when anything is to be remembered.
    pub(crate) fn lasts(&self) -> u64 {
        let keep = self.lived.as_ref().map_or(0, |lived| lived.keep);
        self.expires().max(keep)
    }

    /// Lets another life begin, which rests for so long; unless one does since the one that is known to be lost.
    /// Returns when it did; [all have to be told](Self::tell).
    pub(super) fn quarantine(&mut self, now: u64, known: u64, span: u64) -> u64 {
        let is_heeded = |lived: &Lived| span > 0 && lived.rest > 0 && lived.life.start > known;
        if !self.lived.as_deref().is_some_and(is_heeded) {
            self.clear();
            self.begin(now, known);
            self.set_rest(now, now + span);
        }
        self.life().map_or(now, |life| life.start)
    }

    /// Slots are handed out, to those who know of this life until nothing counts any more.
    pub(super) fn live(&mut self, now: u64, outcomes: &[Outcome]) {
        let is_granted = |outcome: &Outcome| matches!(outcome, Outcome::Granted(_));
        let asked = self.lived.as_mut().and_then(|lived| lived.asked.take());
        let Some((span, process)) = asked else { return };
        let expires = self.expires();
        if let Some(lived) = &mut self.lived
            && outcomes.iter().any(is_granted)
        {
            lived.life.version = now.max(lived.life.version + 1);
            lived.mark(process);
            let keep = expires + 2 * span + SLACK;
            lived.keep = lived.keep.max(keep).min(now + FAR);
        }
    }

    fn clear(&mut self) {
        self.counters.iter_mut().for_each(Count::clear);
        self.free.clear();
    }

    /// After the one that began at `known`, if any did: if that was by a clock which has been set back, this is
    /// said to begin later than it does.
    fn begin(&mut self, now: u64, known: u64) {
        let before = self.lived.as_deref();
        let last = before.map_or(0, |before| before.life.start).max(known);
        let keep = before.map_or(now, |before| before.keep.max(now));
        let start = now.max(last + 1);
        self.lived = Some(Box::new(Lived::new(Life::new(start, now), 0, keep)));
    }

    /// The life that has begun rests until then.
    fn set_rest(&mut self, now: u64, rest: u64) {
        if let Some(lived) = &mut self.lived {
            lived.rest = rest;
            lived.keep = lived.keep.max(rest + (rest - now)).min(now + FAR);
        }
        self.rest(now);
    }

    /// Lets nothing depart while the key rests.
    pub(in super::super) fn rest(&mut self, now: u64) {
        let is_rest =
            |counter: &Counter| matches!(counter, Counter::Hold(it) if it.kind == Kind::Rest);
        self.counters.retain(|counter| !is_rest(counter));
        if let Some(lived) = &self.lived
            && lived.rest > now
        {
            self.set(Hold {
                kind: Kind::Rest,
                until: lived.rest,
                since: lived.life.start,
                left: 0,
            });
        }
    }

    /// What is recorded may have grown to what it was.
    pub(super) fn heal(&mut self) {
        let Some(lived) = &mut self.lived else { return };
        for (until, counter) in lived.torn.iter_mut().zip(&self.counters) {
            if counter.expires() >= *until {
                *until = 0;
            }
        }
    }

    /// Forgets the life if nobody knows anything of it any more. Until then it rests, even if the clock was set
    /// back since.
    pub(super) fn outlive(&mut self, now: u64) {
        if self.lived.as_ref().is_some_and(|lived| lived.keep < now) {
            self.lived = None;
        }
        if self.lived.is_some() {
            self.rest(now);
        }
    }

    /// What stands aside is gone, or the states of these quotas.
    #[cfg(test)]
    pub(in super::super) fn lose(&mut self, aside: bool, quotas: &[bool]) {
        let counters = self.counters.iter_mut().filter(|it| !it.is_hold());
        for (place, counter) in counters.enumerate() {
            if !quotas[place] {
                continue;
            }
            if let Some(lived) = &mut self.lived {
                lived.torn.resize(lived.torn.len().max(place + 1), 0);
                lived.torn[place] = lived.torn[place].max(counter.expires());
            }
            counter.clear();
        }
        if aside {
            self.counters.retain(|counter| !counter.is_hold());
            self.free.clear();
            self.lived = None;
        }
    }
}
