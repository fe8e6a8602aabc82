//! What the driver of a line does: as [`Driver`](super::super::driver::Driver), but for what has to do with tasks.

use std::time::Duration;

use super::fault::Fault;
use super::messages::{Answer, Call, Kind};
use super::moment::At;
use super::process::{Process, Request, Reserving};
use super::setup::{LONGEST, START};
use crate::algorithm::micros;
use crate::clock::Offset;
use crate::line::ask::Asked;
use crate::line::held::Call as Answered;
use crate::line::queue::Wakes;
use crate::store::{Notice, Reserved, Slot, StoreError};

impl Process {
    /// The driver looks.
    pub(super) fn wake(&mut self, at: At) {
        if at.fault == Some(Fault::AsksAnewWhenItWakes) {
            let all = Notice {
                now: 0,
                since: u64::MAX,
                until: u64::MAX - 1,
                paused: 0,
            };
            self.queue.hear(all, at.now, &mut Wakes::new());
            self.queue.heard = Notice::default();
        }
        self.drive(at);
        self.close();
    }

    /// The answer to its oldest call.
    pub(super) fn answered(&mut self, answer: Answer, at: At) {
        let line = self.driver.line;
        if let Answer::Lost(kind) = &answer {
            self.heard_of(*kind, at);
        }
        match answer {
            Answer::Reserved(now, outcomes) => {
                let Some(Reserving { asked, sent, guard }) = self.driver.reserving.take() else {
                    return;
                };
                let sent = at.instant(sent);
                let received = match at.fault {
                    Some(Fault::ReadsAnswersAsIfTheyTookNoTime) => sent,
                    _ => at.now,
                };
                let offset = Offset::of_call(*START, sent, received, now);
                let shows = now + 1 + micros(at.now - sent);
                self.ahead = Some(shows - at.store());
                let call = Answered {
                    life: 0,
                    sent,
                    received,
                    guard,
                    buffer: Duration::ZERO,
                    offset,
                };
                let reserved = Reserved::new(now, outcomes, 0, Duration::ZERO);
                let mut wakes = Wakes::new();
                self.queue.answered(&asked, reserved, call, &mut wakes);
                self.ring(wakes, at);
            }
            Answer::Lost(Kind::Reserve) => {
                if let Some(Reserving { asked, .. }) = self.driver.reserving.take() {
                    let error = StoreError::new("lost").outcome_unknown();
                    let mut wakes = Wakes::new();
                    if at.fault == Some(Fault::DropsWhoAskedInVain) {
                        self.queue.failed(&asked, &error, at.now, &mut wakes);
                    } else {
                        let queue = &mut self.queue;
                        queue.lost(&asked, &error, false, at.now, &mut wakes);
                    }
                    self.ring(wakes, at);
                }
            }
            Answer::Released(of) | Answer::Lost(Kind::Release(of)) if of == line => {
                self.driver.releasing = false;
            }
            Answer::Looked(of, notice) => {
                self.note(notice, notice.now, at);
                if of == line {
                    self.driver.looking = false;
                    let mut wakes = Wakes::new();
                    self.queue.seen(notice, at.now, &mut wakes);
                    self.ring(wakes, at);
                }
            }
            Answer::Lost(Kind::Look(of)) if of == line => self.driver.looking = false,
            Answer::Heeded(notice) => {
                let notice = notice.with_pause();
                self.hear(notice, at);
                return;
            }
            Answer::Released(_) | Answer::Lost(_) => return,
        }
        if !self.queue.is_idle() {
            self.drive(at);
        }
        self.close();
    }

    /// Who was asked for in a call that is lost is asked for once more.
    pub(super) fn lose(&mut self, kind: Kind) {
        self.excuses += u32::from(kind == Kind::Reserve);
    }

    /// As [`Epoch::heard_of`](crate::epoch::Epoch::heard_of): the store is out. What a line looked for that is
    /// closed, nobody hears.
    fn heard_of(&mut self, kind: Kind, at: At) {
        if !matches!(kind, Kind::Look(line) if line != self.driver.line) {
            self.out.get_or_insert(at.tick);
        }
    }

    /// As [`Epoch::go_on`](crate::epoch::Epoch::go_on), after a sign of life.
    pub(super) fn revive(&mut self, at: At) {
        self.out = None;
        if self.queue.is_idle() || at.fault == Some(Fault::NeverLooksAgain) {
            return;
        }
        self.queue.look_again();
        self.changed(Wakes::new(), at);
    }

    /// As [`Driver::look`](super::super::driver) does.
    fn drive(&mut self, at: At) {
        self.driver.is_called = false;
        let mut wakes = Wakes::new();
        self.queue.advance(at.now, &mut wakes);
        self.queue.looks_again = false;
        if self.out.is_some() {
            self.forsaken.append(&mut self.queue.surplus);
            let error = StoreError::new("out");
            self.queue.looks(at.now, true, false);
            self.queue.out(&error, false, at.now, &mut wakes);
            return self.rest(wakes, at);
        }
        let asked = self.queue.ask(at.now);
        let surplus = if self.driver.releasing {
            Vec::new()
        } else {
            self.queue.take_surplus()
        };
        let is_blind = at.fault == Some(Fault::WakesForWhatHasPassed) && self.driver.looking;
        let looks = !is_blind && self.queue.looks(at.now, true, !self.driver.looking);
        self.rest(wakes, at);
        let line = self.driver.line;
        let mut given_back = surplus.clone();
        for (_, call) in &self.calls {
            if let Call::Release(_, slots) = call {
                given_back.extend_from_slice(slots);
            }
        }
        let reserve = asked.map(|asked| self.reserve(asked, given_back, at));
        let release = (!surplus.is_empty()).then_some(Call::Release(line, surplus));
        self.driver.releasing |= release.is_some();
        let look = looks.then_some(Call::Look(line));
        self.driver.looking |= looks;
        let calls = [release, reserve, look];
        let calls = calls.into_iter().flatten().map(|call| (at.tick, call));
        self.calls.extend(calls);
    }

    /// The driver has seen to all, and sleeps until something happens, or its alarm goes off.
    fn rest(&mut self, wakes: Wakes, at: At) {
        let planned = self.queue.plan();
        self.is_restless |= planned.is_some_and(|planned| planned <= at.now);
        self.ring(wakes, at);
    }

    fn reserve(&mut self, asked: Asked, given_back: Vec<Slot>, at: At) -> Call {
        for &(id, _) in &asked.waiters {
            for request in &mut self.requests {
                if let Request::Waiting(waiting) = request
                    && waiting.id == id
                {
                    waiting.calls += 1;
                }
            }
        }
        let guard = self.guard.current();
        assert!(guard < LONGEST, "the guard grows without bound");
        let call = Call::Reserve {
            asks: asked.asks.clone(),
            not_before: asked.not_before.max(self.until(at)),
            guard,
            least_guard: self.guard.least(),
            round_trip: self.guard.round_trip(),
            given_back,
        };
        self.driver.reserving = Some(Reserving {
            asked,
            sent: at.tick,
            guard,
        });
        call
    }
}
