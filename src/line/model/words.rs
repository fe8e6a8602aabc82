//! Which states are the same: [`World`]s in words, with all times as seen from now.
//!
//! A world does not tell how old it is, nor which of two processes is which. All that has an influence on what
//! comes next, or on whether that is right, is in its words.

use std::hash::{Hash, Hasher};

use tokio::time::Instant;

use super::messages::{Answer, Call, Kind};
use super::process::{Process, Request, Waiting};
use super::setup::START;
use super::world::{Owner, World};
use crate::algorithm::micros;
use crate::line::held::Held;
use crate::line::queue::Queue;
use crate::line::segment::Phase;
use crate::store::{Notice, Outcome, Slot, Word};

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words().hash(state);
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.words() == other.words()
    }
}

impl World {
    fn words(&self) -> Vec<u64> {
        let at = self.at(None);
        let mut words = Words {
            words: Vec::with_capacity(128),
            local: at.now,
            store: at.store(),
            tick: self.tick,
        };
        let left = self.left;
        let counts = [
            left.late,
            left.cancelled,
            left.lost,
            left.crashed,
            left.paused,
            left.missed,
        ];
        counts.into_iter().for_each(|it| words.push(it.into()));
        words.push(
            self.broken
                .iter()
                .fold(0, |all, &claim| all | 1 << claim as u64),
        );
        words.each(self.departed.iter(), |words, &it| words.time(it));
        words.each(self.ledger.records().iter(), |words, &it| words.time(it));
        words.each(self.ledger.free().iter(), Words::slot);
        words.notice(self.ledger.clone().heed(at.store(), Word::None));
        let mut lost: Vec<_> = self
            .handed
            .iter()
            .filter(|it| !matches!(it.owner, Owner::Process(_)))
            .collect();
        lost.sort_unstable();
        words.each(lost.into_iter(), |words, it| {
            // Only what is to come has an order.
            words.push(it.at.saturating_sub(words.store));
            words.time(it.record);
            words.push((it.owner == Owner::Nobody).into());
            words.push((it.by_wish && it.at > words.store).into());
        });
        let mut processes: Vec<_> = (0..self.processes.len())
            .map(|p| self.words_of(p))
            .collect();
        processes.sort_unstable();
        words.words.extend(processes.into_iter().flatten());
        words.words
    }

    fn words_of(&self, p: usize) -> Vec<u64> {
        let at = self.at(None);
        let mut words = Words {
            words: Vec::with_capacity(64),
            local: at.now,
            store: at.store(),
            tick: self.tick,
        };
        let mut handed: Vec<_> = self
            .handed
            .iter()
            .filter(|it| it.owner == Owner::Process(p))
            .collect();
        handed.sort_unstable();
        words.each(handed.into_iter(), |words, it| {
            words.time(it.at);
            words.time(it.record);
            words.push((it.by_wish && it.at > words.store).into());
        });
        words.process(&self.processes[p], self.left.paused > 0);
        words.words
    }
}

struct Words {
    words: Vec<u64>,
    local: Instant,
    store: u64,
    tick: u64,
}

/// Longer than any slot is held after its time, in microseconds.
const OLD: u64 = 20_000;

/// What ends a list, and no time of this century.
const END: u64 = u64::MAX - 7;

impl Words {
    fn push(&mut self, word: u64) {
        self.words.push(word);
    }

    fn each<T>(&mut self, all: impl Iterator<Item = T>, one: impl Fn(&mut Self, T)) {
        all.for_each(|it| one(self, it));
        self.push(END);
    }

    /// A time on the store's clock.
    fn time(&mut self, time: u64) {
        self.push(time.wrapping_sub(self.store));
    }

    /// One that may be none.
    fn some_time(&mut self, time: u64) {
        if time == 0 {
            self.push(END)
        } else {
            self.time(time)
        }
    }

    fn instant(&mut self, instant: Instant) {
        let nanos = |span: std::time::Duration| span.as_nanos() as u64;
        self.push(nanos(instant - *START).wrapping_sub(nanos(self.local - *START)));
    }

    fn some_instant(&mut self, instant: Option<Instant>) {
        match instant {
            Some(instant) => self.instant(instant),
            None => self.push(END),
        }
    }

    fn age(&mut self, tick: u64) {
        self.push(self.tick - tick);
    }

    fn slot(&mut self, slot: &Slot) {
        self.time(slot.at);
        self.time(slot.record);
    }

    fn held(&mut self, held: &Held) {
        self.slot(&held.slot);
        self.instant(held.due);
        self.instant(held.expires);
        self.time(held.reserved);
        self.push(held.recorded);
        self.push(held.guard.into());
        self.push(held.at_once.into());
    }

    fn notice(&mut self, notice: Notice) {
        let Notice {
            now,
            since,
            until,
            paused,
        } = notice;
        for time in [now, since, until, paused] {
            self.some_time(time);
        }
    }

    fn waiting(&mut self, waiting: &Waiting) {
        self.push(waiting.is_told.into());
        self.push(waiting.was_late.into());
        self.push(waiting.calls.into());
    }

    fn process(&mut self, process: &Process, may_pause: bool) {
        self.push(process.has_crashed.into());
        self.push(process.excuses.into());
        if process.has_crashed {
            // What it has learnt is gone.
            return self.calls(process);
        }
        self.push(process.out.map_or(END, |since| self.tick - since));
        self.push(process.is_restless.into());
        for word in process.guard.learnt() {
            self.push(word);
        }
        self.each(process.requests.iter(), |words, request| {
            words.request(&process.queue, request)
        });
        self.queue(&process.queue);
        self.calls(process);
        self.each(process.answers.iter(), |words, (sent, answer)| {
            words.age(*sent);
            words.answer(process, answer);
        });
        self.each(process.notices.iter(), |words, &(sent, notice)| {
            words.age(sent);
            words.notice(notice);
        });
        self.push(process.driver.is_called.into());
        self.push(process.driver.releasing.into());
        self.push(process.driver.looking.into());
        if let Some(reserving) = &process.driver.reserving {
            self.age(reserving.sent);
            self.push(micros(reserving.guard));
            self.push((reserving.asked.number <= process.queue.heard_at).into());
            self.each(reserving.asked.waiters.iter(), |words, &(id, segment)| {
                words.push(id.arrival());
                words.push(segment.wrapping_sub(process.queue.first_segment));
            });
        }
        if let Some(known) = process.known.filter(|known| self.local < known.over) {
            self.some_time(known.told);
            self.some_time(known.until);
            self.instant(known.over);
            self.push(known.is_resumed.into());
        }
        self.push(END);
        self.each(process.heard.iter(), |words, &(since, until)| {
            words.time(since);
            words.time(until);
        });
        if may_pause {
            self.push(process.ahead.unwrap_or(END));
        }
    }

    fn request(&mut self, queue: &Queue, request: &Request) {
        match request {
            Request::ToCome => self.push(0),
            Request::Over => self.push(1),
            Request::Permitted(held, waiting) => {
                self.push(2);
                self.waiting(waiting);
                self.held(held);
            }
            Request::Waiting(waiting) => {
                self.push(3);
                self.waiting(waiting);
                let node = &queue.nodes[waiting.id.index];
                self.push(waiting.id.arrival());
                self.push(node.waker.is_some().into());
                match &node.phase {
                    Phase::Waiting { segment, has_slot } => {
                        self.push(segment.wrapping_sub(queue.first_segment));
                        self.push((*has_slot).into());
                    }
                    Phase::Due { place, listed } => {
                        self.push((*listed).into());
                        self.held(&queue.due_slots[*place]);
                    }
                    Phase::Refused(_) => self.push(END),
                }
            }
        }
    }

    fn queue(&mut self, queue: &Queue) {
        // The order of those in the segments is that of their arrival; on the list, of their slots.
        self.each(queue.segments.iter(), |words, segment| {
            words.each(segment.slots(), Self::held)
        });
        self.push(queue.due.head.map_or(END, |head| queue.nodes[head].arrival));
        for instant in [queue.patience, queue.gathering, queue.put_off_since] {
            self.some_instant(instant);
        }
        for instant in [queue.settling, queue.next_look] {
            self.some_instant(instant);
        }
        match queue.planned {
            // How much patience is left is no concern of a model in which it does not end.
            Some(_) if queue.planned == queue.next_to_give_up() => self.push(END - 1),
            planned => self.some_instant(planned),
        }
        self.push(queue.out.is_some().into());
        self.push(queue.next_to_give_up().is_some().into());
        self.push(queue.is_unseen().into());
        self.push(queue.looks_again.into());
        self.each(queue.surplus.iter(), Self::slot);
        self.push(queue.asking.into());
        self.push(queue.gathered as u64);
        let heard = queue.heard;
        // What lies that far behind concerns no slot that anybody has.
        if self.store < heard.until.max(heard.paused).saturating_add(OLD) {
            self.notice(Notice { now: 0, ..heard });
        }
        self.push(queue.missed.into());
        self.push(queue.known.as_nanos() as u64);
    }

    fn calls(&mut self, process: &Process) {
        self.each(process.calls.iter(), |words, (sent, call)| {
            words.age(*sent);
            match call {
                Call::Reserve {
                    asks,
                    not_before,
                    guard,
                    least_guard,
                    round_trip,
                    given_back,
                } => {
                    words.each(asks.iter(), |words, ask| words.push(ask.count.into()));
                    words.some_time(*not_before);
                    for span in [guard, least_guard, round_trip] {
                        words.push(micros(*span));
                    }
                    words.each(given_back.iter(), Self::slot);
                }
                Call::Release(line, slots) => {
                    words.push((*line == process.driver.line).into());
                    words.each(slots.iter(), Self::slot);
                }
                Call::Look(line) => words.push(2 + u64::from(*line == process.driver.line)),
                Call::Heed(Word::Pause { span, .. }) => words.push(*span),
                Call::Heed(_) => words.push(END),
            }
        });
    }

    fn answer(&mut self, process: &Process, answer: &Answer) {
        match answer {
            Answer::Reserved(now, outcomes) => {
                self.time(*now);
                self.each(outcomes.iter(), |words, outcome| match outcome {
                    Outcome::Granted(slot) => words.slot(slot),
                    Outcome::Refused { wait } => words.push(*wait),
                });
            }
            Answer::Released(line) => self.push((*line == process.driver.line).into()),
            Answer::Looked(line, notice) => {
                self.push(2 + u64::from(*line == process.driver.line));
                self.notice(*notice);
            }
            Answer::Heeded(notice) => self.notice(*notice),
            Answer::Lost(kind) => self.lost(process, *kind),
        }
    }

    fn lost(&mut self, process: &Process, kind: Kind) {
        match kind {
            Kind::Reserve => self.push(4),
            Kind::Release(line) => self.push(5 + u64::from(line == process.driver.line)),
            Kind::Look(line) => self.push(7 + u64::from(line == process.driver.line)),
            Kind::Heed => self.push(9),
        }
    }
}
