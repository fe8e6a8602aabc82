//! What the upstream says, and who has to know.

use super::super::hold::{Hold, Kind};
use super::{Count, Counter, Ledger, Taken, micros};
use crate::quota::HORIZON;

/// Beyond all slots, and a number that Lua holds exactly.
const END_OF_TIME: u64 = (1 << 53) - 1;

/// What is said of a key, by its upstream or by whoever watches over it.
///
/// It holds for all replicas, besides the quotas, until its time has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Word {
    /// Nothing: only the [`Notice`] is of interest.
    None,
    /// Nothing may depart for so long. A pause that lasts longer stays as it is.
    Pause {
        /// How long, in microseconds.
        span: u64,
        /// The [slot](super::Slot::at) of the request that was answered so: if it departed before the pause
        /// was said that holds, or last extended, the answer is old, and the pause stays as it is.
        /// [`u64::MAX`] for a word that is no answer.
        departed: u64,
    },
    /// No more than this may be handed out for so long. While such a word holds, only one that says less
    /// counts. What is given back meanwhile is not handed out again.
    Allow {
        /// The most that may, counted as cost.
        left: u32,
        /// How long, in microseconds.
        span: u64,
    },
    /// Whatever was said holds no longer.
    Resume,
    /// What is recorded cannot be relied on: it is forgotten, nobody uses what was handed out before, and
    /// nothing may depart for so long. Another [`Life`](super::Life) begins.
    Quarantine {
        /// How long, in microseconds: until whatever departed before counts no longer, or 0 to begin anew at
        /// once.
        span: u64,
        /// [When the life began](super::Life::start) that is lost, or 0. If another has begun since as something
        /// was lost, this changes nothing, but for a span of 0.
        known: u64,
    },
}

/// Of whatever was reserved before: but for this number, that there is nothing to be told.
const EVERYTHING: u64 = END_OF_TIME - 1;

/// What those who hold slots have to know of a [`Word`].
///
/// Slots before `until` that were not reserved after `since` are not to be used. Where `until` is close to the
/// end of time, 2^53, nothing is to be used that is held already; of a [quarantine](Word::Quarantine), `since` is
/// when the new life began. All times are in microseconds on the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notice {
    /// The store's time.
    pub now: u64,
    /// What was reserved until then is concerned.
    pub since: u64,
    /// What lies before is concerned; 0 if nothing is.
    pub until: u64,
    /// Nothing departs before; 0 if there is no pause.
    pub paused: u64,
}

impl Notice {
    /// Whether a slot is not to be used by whoever holds it, or has asked for it, when this is heard.
    #[must_use]
    pub fn voids(&self, at: u64, reserved: u64) -> bool {
        at < self.until && reserved <= self.since
    }

    /// Whether this says that a pause is over before its time.
    pub(crate) fn is_resumption(&self) -> bool {
        self.until == END_OF_TIME
    }

    /// Whether nothing is to be used that is held when this is heard, whenever it was reserved: the clock may
    /// have been another.
    pub(crate) fn is_quarantine(&self) -> bool {
        self.until == EVERYTHING
    }

    /// What those hear who hold slots of a key whose life is over, as another has begun then.
    pub(crate) fn quarantine(now: u64, since: u64) -> Self {
        Self {
            now,
            since,
            until: EVERYTHING,
            paused: 0,
        }
    }

    /// Whether a store can have said that. Not so, there may be no slot behind the pause, or none that can be
    /// written down.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only Redis tells what others may have said")
    )]
    pub(crate) fn makes_sense(&self) -> bool {
        let horizon = micros(HORIZON);
        let is_time = |time: u64| time < END_OF_TIME - 2 * horizon;
        let is_within_reach = |time: u64| time.saturating_sub(self.now) <= horizon;
        is_time(self.now)
            && is_within_reach(self.since)
            && is_within_reach(self.paused)
            && (is_within_reach(self.until) || self.is_resumption() || self.is_quarantine())
    }

    /// The same for whoever has said something that changed nothing, as there is a longer pause: that concerns the
    /// slots that it holds, and it may not have been told of it yet.
    pub(crate) fn with_pause(self) -> Self {
        if self.until == 0 && self.now < self.paused {
            let until = self.paused;
            return Self { until, ..self };
        }
        self
    }

    /// What it would have been if nobody had heard that a pause is over.
    pub(crate) fn resumption(now: u64) -> Self {
        Self {
            now,
            since: now,
            until: END_OF_TIME,
            paused: 0,
        }
    }

    /// Both in one: voids what either does, and perhaps more.
    pub(crate) fn and(self, other: Self) -> Self {
        if other.until == 0 {
            return self;
        }
        let last = if other.since < self.since {
            self
        } else {
            other
        };
        Self {
            since: last.since,
            until: self.until.max(other.until),
            ..last
        }
    }
}

impl Counter {
    pub(in super::super) fn is_hold(&self) -> bool {
        matches!(self, Self::Hold(_))
    }
}

impl Ledger {
    /// Notes what is said. The notice concerns somebody only if that changes anything, or if nothing
    /// was said.
    pub(crate) fn heed(&mut self, now: u64, word: Word) -> Notice {
        if word == Word::None {
            return self.notice(now);
        }
        self.refresh(now);
        let after = |span: u64| now + span.min(micros(HORIZON));
        let until = match word {
            Word::None | Word::Pause { span: 0, .. } | Word::Allow { span: 0, .. } => 0,
            Word::Pause { span, departed } => self.pause(now, after(span), departed),
            Word::Allow { left, span } => self.allow(now, left, after(span)),
            Word::Resume => self.resume(),
            Word::Quarantine { span, known } => {
                let since = self.quarantine(now, known, span.min(micros(HORIZON)));
                return Notice {
                    since,
                    until: EVERYTHING,
                    ..self.notice(now)
                };
            }
        };
        let notice = self.notice(now);
        Notice {
            since: if until > 0 {
                notice.since.max(now)
            } else {
                notice.since
            },
            until,
            ..notice
        }
    }

    /// How it stands.
    fn notice(&self, now: u64) -> Notice {
        let mut notice = Notice {
            now,
            ..Notice::default()
        };
        for hold in self.holds().filter(|hold| now < hold.until) {
            notice.since = notice.since.max(hold.since);
            notice.until = notice.until.max(hold.until);
            if hold.kind != Kind::Allowance {
                notice.paused = notice.paused.max(hold.until);
            }
        }
        notice
    }

    /// Before when slots are void, as in the others that follow.
    fn pause(&mut self, now: u64, until: u64, departed: u64) -> u64 {
        if let Some(pause) = self.hold(Kind::Pause)
            && (departed < pause.since || until <= pause.until)
        {
            return 0;
        }
        self.set(Hold {
            kind: Kind::Pause,
            until,
            since: now,
            left: 0,
        });
        until
    }

    fn allow(&mut self, now: u64, left: u32, until: u64) -> u64 {
        let kind = Kind::Allowance;
        match self.hold(kind).copied() {
            None => {
                let since = now;
                self.set(Hold {
                    kind,
                    until,
                    since,
                    left,
                });
                until
            }
            Some(hold) if left < hold.left => {
                let until = until.max(hold.until);
                self.set(Hold {
                    until,
                    left,
                    ..hold
                });
                0
            }
            Some(_) => 0,
        }
    }

    fn resume(&mut self) -> u64 {
        let before = self.counters.len();
        let is_said =
            |counter: &Counter| matches!(counter, Counter::Hold(it) if it.kind != Kind::Rest);
        self.counters.retain(|counter| !is_said(counter));
        let is_over = self.counters.len() < before;
        if is_over { END_OF_TIME } else { 0 }
    }

    pub(super) fn set(&mut self, hold: Hold) {
        let of_kind =
            |counter: &Counter| matches!(counter, Counter::Hold(it) if it.kind == hold.kind);
        self.counters.retain(|counter| !of_kind(counter));
        self.counters.push(Counter::Hold(hold));
        // In one order, whatever was said first.
        self.counters.sort_by_key(|counter| match counter {
            Counter::Hold(hold) => Some(hold.kind),
            _ => None,
        });
    }

    pub(in super::super) fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.counters.iter().filter_map(|counter| match counter {
            Counter::Hold(hold) => Some(hold),
            _ => None,
        })
    }

    pub(in super::super) fn hold(&self, kind: Kind) -> Option<&Hold> {
        self.holds().find(|hold| hold.kind == kind)
    }

    pub(super) fn drop_holds(&mut self, now: u64) {
        if self.counters.last().is_some_and(Counter::is_hold) {
            self.counters
                .retain(|counter| !matches!(counter, Counter::Hold(hold) if hold.until <= now));
        }
    }

    /// The first time, not before `x`, at which what was said lets requests worth `cost` go.
    pub(super) fn held_up(&self, x: u64, cost: u32) -> u64 {
        let until = |x: u64, hold: &Hold| hold.earliest(x, 0, cost);
        // The other way round as well, since the second may push into the first.
        let once = self.holds().fold(x, until);
        self.holds().fold(once, until)
    }

    pub(super) fn charge_holds(&mut self, taken: Taken) {
        for counter in &mut self.counters {
            if let Counter::Hold(hold) = counter {
                let _nothing = hold.take(taken);
            }
        }
    }
}
