//! What a process says of pauses, and what it hears of them.

use std::time::Duration;

use super::fault::Fault;
use super::messages::Call;
use super::moment::At;
use super::process::{Pause, Process};
use crate::algorithm::micros;
use crate::line::SETTLING;
use crate::line::queue::Wakes;
use crate::store::{Notice, Word};

impl Process {
    /// Nothing departs from here before `span` has passed, and the store is told.
    pub(super) fn pause(&mut self, span: Duration, at: At) {
        let now = at.store();
        if let Some(ahead) = self.ahead {
            let now = now + ahead;
            let until = now + micros(span);
            if self.until(at) < until {
                let notice = Notice {
                    now,
                    since: now,
                    until,
                    paused: until,
                };
                self.note(notice, 0, at);
                self.hear_line(notice, at);
            }
        }
        let word = Word::Pause {
            span: micros(span),
            departed: u64::MAX,
        };
        if self.out.is_some() {
            return;
        }
        self.calls.push_back((at.tick, Call::Heed(word)));
    }

    /// The channel has told.
    pub(super) fn hear(&mut self, notice: Notice, at: At) {
        self.note(notice, notice.now, at);
        self.hear_line(notice, at);
    }

    /// The channel was broken for a moment.
    pub(super) fn miss(&mut self, at: At) {
        self.notices.clear();
        if !self.queue.is_idle() {
            self.queue.miss();
            self.changed(Wakes::new(), at);
        }
    }

    /// Until when nothing departs, as far as is known here.
    pub(super) fn until(&self, at: At) -> u64 {
        let known = self.known.filter(|pause| at.now < pause.over);
        known.map_or(0, |pause| pause.until)
    }

    /// As [`Pauses`](crate::pauses::Pauses) notes it.
    pub(super) fn note(&mut self, notice: Notice, told: u64, at: At) {
        self.known = self.known.filter(|pause| at.now < pause.over);
        let left = notice.paused.saturating_sub(notice.now);
        let is_resumed = notice.is_resumption();
        if left > 0 {
            // Where the store has not confirmed it, the clock may be less far than was thought.
            let until = if told > 0 {
                notice.paused
            } else {
                at.store() + left
            };
            if self.heard.iter().all(|&(_, known)| known < until) {
                self.heard.push((at.store(), until));
            }
        }
        match self.known {
            None if left == 0 && !is_resumed => return,
            Some(known) if told > 0 && told < known.told => return,
            _ => {}
        }
        let span = if left > 0 {
            Duration::from_micros(left)
        } else {
            SETTLING
        };
        self.known = Some(Pause {
            told,
            until: if left > 0 { notice.paused } else { 0 },
            over: at.now + span,
            is_resumed,
        });
    }

    /// Those in line hear it, if there is a line.
    fn hear_line(&mut self, notice: Notice, at: At) {
        self.excuses += u32::from(notice.until > 0);
        if self.queue.is_idle() || at.fault == Some(Fault::LeavesHeldSlotsInAPause) {
            return;
        }
        let mut wakes = Wakes::new();
        self.queue.hear(notice, at.now, &mut wakes);
        self.changed(wakes, at);
    }
}
