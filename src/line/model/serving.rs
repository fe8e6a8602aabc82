//! What the store does with the calls that reach it, and what becomes of those that do not.

use std::time::Duration;

use super::claims::Claim;
use super::fault::Fault;
use super::messages::{Answer, Call, Kind};
use super::seen::Event;
use super::setup::Setup;
use super::world::{Handed, Owner, World};
use crate::algorithm::micros;
use crate::key::Key;
use crate::policy::Policy;
use crate::store::{Notice, Outcome, Reserve, Slot, Terms, Word};

impl World {
    /// The store gets the oldest call.
    pub(super) fn call(&mut self, setup: &Setup, p: usize) {
        let now = self.now();
        let calls = &mut self.processes[p].calls;
        if setup.fault == Some(Fault::LetsCallsOvertakeReleases) {
            let overtakes = |(_, call): &(u64, Call)| matches!(call, Call::Reserve { .. });
            if let Some(place) = calls.iter().position(overtakes) {
                calls.swap(0, place);
            }
        }
        let Some((sent, call)) = calls.pop_front() else {
            return;
        };
        let answer = match call {
            Call::Reserve { .. } => self.reserve(setup, p, &call),
            Call::Release(line, slots) => {
                self.release(setup, p, &slots);
                Answer::Released(line)
            }
            Call::Look(line) => Answer::Looked(line, self.ledger.heed(now, Word::None)),
            Call::Heed(word) => {
                let notice = self.ledger.heed(now, word);
                if notice.until > 0 {
                    self.publish(notice);
                }
                Answer::Heeded(notice)
            }
        };
        if !self.processes[p].has_crashed {
            self.processes[p].answers.push_back((sent, answer));
        }
    }

    fn publish(&mut self, notice: Notice) {
        for process in self.processes.iter_mut().filter(|it| !it.has_crashed) {
            process.notices.push_back((self.tick, notice));
        }
    }

    fn reserve(&mut self, setup: &Setup, p: usize, call: &Call) -> Answer {
        let now = self.now();
        let Call::Reserve {
            asks,
            not_before,
            guard,
            least_guard,
            round_trip,
            given_back,
        } = call
        else {
            unreachable!("only those come here");
        };
        let mut terms = terms(&self.policy, *guard, *least_guard, *round_trip, *not_before);
        let margin = terms.margin;
        if setup.fault == Some(Fault::RecordsNoGuard) {
            (terms.margin, terms.least_margin) = (0, 0);
        }
        // What was given back before the process asked is here by now: it comes before what is later.
        let is_on_its_way = |back: &&Slot| now < back.at && self.owns(p, back);
        let not_yet_back = given_back.iter().filter(is_on_its_way);
        let not_yet_back: Vec<_> = not_yet_back.map(|back| back.at).collect();
        let free = self.ledger.free().to_vec();
        let limits = Limits {
            paused: self.ledger.heed(now, Word::None).paused,
            not_before: *not_before,
        };
        let mut outcomes = self.ledger.reserve(now, &terms, asks).into_vec();
        let mut free: Vec<_> = free.iter().map(|slot| (slot.at, slot.record)).collect();
        for outcome in &mut outcomes {
            let Outcome::Granted(slot) = outcome else {
                continue;
            };
            self.granted(setup, p, slot, &mut free, &limits);
            if slot.at > now + setup.longest_wait() {
                self.broken.push(Claim::NeverDropped);
            }
            if not_yet_back.iter().any(|&back| back < slot.at) {
                self.broken.push(Claim::NothingLeaks);
            }
            if setup.fault == Some(Fault::RecordsNoGuard) {
                slot.record += margin;
            }
        }
        Answer::Reserved(now, outcomes)
    }

    /// A slot is handed out, in order: behind all others, unless it was given back.
    fn granted(
        &mut self,
        setup: &Setup,
        p: usize,
        slot: &Slot,
        free: &mut Vec<(u64, u64)>,
        call: &Limits,
    ) {
        let name = (slot.at, slot.record);
        match free.iter().position(|&it| it == name) {
            Some(place) => {
                free.remove(place);
                setup.seen.note(Event::IsHandedOutAgain);
            }
            None if self.handed.iter().any(|handed| handed.is_ahead(slot.at)) => {
                self.broken.push(Claim::InOrder);
            }
            None => {}
        }
        if slot.at < call.paused {
            self.broken.push(Claim::PausesHold);
        }
        let owner = if self.processes[p].has_crashed {
            Owner::Nobody
        } else {
            Owner::Process(p)
        };
        let Slot { at, record, .. } = *slot;
        self.handed.push(Handed {
            at,
            record,
            owner,
            by_wish: self.now() < at && at == call.not_before,
        });
    }

    fn release(&mut self, setup: &Setup, p: usize, slots: &[Slot]) {
        let mut slots = slots.to_vec();
        if setup.fault == Some(Fault::RecordsNoGuard) {
            let margin = micros(self.policy.guard());
            slots.iter_mut().for_each(|slot| slot.record -= margin);
        }
        let now = self.now();
        let paused = self.ledger.heed(now, Word::None).paused;
        self.ledger.release(now, &slots);
        for slot in slots {
            if slot.at <= now {
                setup.seen.note(Event::Expires);
            } else if slot.at < paused {
                setup.seen.note(Event::IsVoid);
            }
            let place_of = |owner: Owner| {
                let Slot { at, record, .. } = slot;
                let is_it = |it: &Handed| (it.at, it.record, it.owner) == (at, record, owner);
                self.handed.iter().position(is_it)
            };
            // One that crashed may have sent it before.
            match place_of(Owner::Process(p)).or_else(|| place_of(Owner::Nobody)) {
                Some(place) => drop(self.handed.remove(place)),
                None if slot.record + self.window <= now => {}
                None => self.broken.push(Claim::NothingLeaks),
            }
        }
    }

    pub(super) fn lose_call(&mut self, setup: &Setup, p: usize) {
        self.left.lost -= 1;
        let Some((sent, call)) = self.processes[p].calls.pop_front() else {
            return;
        };
        let kind = match call {
            Call::Reserve { .. } => Kind::Reserve,
            Call::Release(line, slots) => {
                for slot in &slots {
                    self.give_to(slot.at, slot.record, p, Owner::Nobody);
                    setup.seen.note(Event::IsLost);
                }
                Kind::Release(line)
            }
            Call::Look(line) => Kind::Look(line),
            Call::Heed(_) => Kind::Heed,
        };
        self.processes[p].lose(kind);
        self.processes[p]
            .answers
            .push_back((sent, Answer::Lost(kind)));
    }

    pub(super) fn lose_answer(&mut self, setup: &Setup, p: usize) {
        self.left.lost -= 1;
        let Some((sent, answer)) = self.processes[p].answers.pop_front() else {
            return;
        };
        let kind = match answer {
            Answer::Reserved(_, outcomes) => {
                for outcome in outcomes {
                    if let Outcome::Granted(slot) = outcome {
                        self.give_to(slot.at, slot.record, p, Owner::Nobody);
                        setup.seen.note(Event::IsLost);
                    }
                }
                Kind::Reserve
            }
            Answer::Released(line) => Kind::Release(line),
            Answer::Looked(line, _) => Kind::Look(line),
            Answer::Heeded(_) => Kind::Heed,
            Answer::Lost(kind) => kind,
        };
        self.processes[p].lose(kind);
        self.processes[p]
            .answers
            .push_front((sent, Answer::Lost(kind)));
    }

    fn owns(&self, p: usize, slot: &Slot) -> bool {
        let &Slot { at, record, .. } = slot;
        let owner = Owner::Process(p);
        let is_it = |it: &Handed| (it.at, it.record, it.owner) == (at, record, owner);
        self.handed.iter().any(is_it)
    }

    pub(super) fn give_to(&mut self, at: u64, record: u64, p: usize, owner: Owner) {
        let its = |handed: &&mut Handed| {
            (handed.at, handed.record, handed.owner) == (at, record, Owner::Process(p))
        };
        if let Some(handed) = self.handed.iter_mut().find(its) {
            handed.owner = owner;
        }
    }
}

/// Before when no slot is to be handed out: by a pause that the store knows of, and by the wish of whoever asks.
struct Limits {
    paused: u64,
    not_before: u64,
}

fn terms(
    policy: &Policy,
    guard: Duration,
    least_guard: Duration,
    round_trip: Duration,
    not_before: u64,
) -> Terms {
    let key = Key::new("a");
    Reserve {
        guard,
        least_guard,
        round_trip,
        not_before,
        ..Reserve::new(&key, policy)
    }
    .terms()
}
