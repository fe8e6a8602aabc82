//! The whole: [`World`], the store's ledger and the processes, and all that can happen next.

use std::sync::Arc;
use std::time::Duration;

use super::actions::Action;
use super::claims::Claim;
use super::fault::Fault;
use super::moment::At;
use super::process::{Found, Process, Request};
use super::seen::Event;
use super::setup::{EPOCH, May, START, Setup};
use crate::algorithm::ledger::Ledger;
use crate::algorithm::micros;
use crate::policy::Policy;
use crate::store::{Ask, Outcome, Slot};

/// The store's ledger, the processes, and what has happened to the slots.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) tick: u64,
    length: Duration,
    pub(super) window: u64,
    pub(super) policy: Arc<Policy>,
    pub(super) ledger: Ledger,
    pub(super) processes: Vec<Process>,
    pub(super) left: May,
    /// When requests departed in the last window, on the store's clock.
    pub(super) departed: Vec<u64>,
    /// What the store has charged and not got back.
    pub(super) handed: Vec<Handed>,
    pub(super) broken: Vec<Claim>,
}

/// A slot that the store has handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Handed {
    pub(super) at: u64,
    pub(super) record: u64,
    pub(super) owner: Owner,
    /// Whether its process has asked for none before, as it knows of a pause that the store may not know yet.
    pub(super) by_wish: bool,
}

impl Handed {
    /// Whether one that comes before it is out of order.
    pub(super) fn is_ahead(&self, at: u64) -> bool {
        self.at > at && !self.by_wish
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Process(usize),
    /// It was used.
    Departure,
    /// It is lost, with a process or a call, or was not given back in an outage.
    Nobody,
}

impl World {
    pub(super) fn new(setup: &Setup) -> Self {
        let policy = Arc::new(setup.policy());
        let new = |&requests: &usize| Process::new(requests, policy.guard());
        let mut world = Self {
            tick: 0,
            length: setup.tick,
            window: micros(setup.window()),
            ledger: Ledger::new(policy.rules()),
            processes: setup.requests.iter().map(new).collect(),
            policy: policy.clone(),
            left: setup.may,
            departed: Vec::new(),
            handed: Vec::new(),
            broken: Vec::new(),
        };
        for _ in 0..setup.departed {
            world.depart_first(&policy);
        }
        world
    }

    /// Somebody has departed just now, of another process.
    fn depart_first(&mut self, policy: &Policy) {
        const ONE: Ask = Ask {
            count: 1,
            cost: 1,
            max_wait: 0,
        };
        let now = self.now();
        let outcomes = self.ledger.reserve(now, &policy.terms(), &[ONE]);
        let Some(Outcome::Granted(Slot { at, record, .. })) = outcomes.first() else {
            panic!("more than the limit");
        };
        self.handed.push(Handed {
            at: *at,
            record: *record,
            owner: Owner::Departure,
            by_wish: false,
        });
        self.departed.push(now);
    }

    /// What the store's clock shows.
    pub(super) fn now(&self) -> u64 {
        EPOCH + micros(self.length) * self.tick
    }

    pub(super) fn at(&self, fault: Option<Fault>) -> At {
        At {
            tick: self.tick,
            now: *START + self.length * u32::try_from(self.tick).expect("a short history"),
            length: self.length,
            fault,
        }
    }

    pub(super) fn has_broken(&self, claim: Claim) -> bool {
        self.broken.contains(&claim)
    }

    /// Whether each request that waits has somebody who sees to it: it has a slot, and the driver wakes when that
    /// comes, or one is asked for, or is going to be.
    pub(super) fn all_are_served(&self) -> bool {
        self.processes.iter().all(Process::serves_all)
    }

    pub(super) fn nobody_waits(&self) -> bool {
        self.processes
            .iter()
            .all(|it| it.requests.iter().all(|it| it.waiting().is_none()))
    }

    /// Whether nothing can happen any more.
    pub(super) fn is_over(&self, setup: &Setup) -> bool {
        let can_time_pass = self.waits() && !self.is_anybody_due();
        if !self.broken.is_empty() || can_time_pass {
            return false;
        }
        let mut actions = Vec::new();
        self.actions(setup, &mut actions);
        actions.is_empty()
    }

    /// Whether no trace is left of what was.
    pub(super) fn is_clean(&self) -> bool {
        let mut ledger = self.ledger.clone();
        ledger.release(self.now(), &[]);
        let is_idle =
            |process: &Process| process.queue.is_idle() && process.queue.next_event().is_none();
        ledger.records().is_empty()
            && ledger.free().is_empty()
            && ledger.expires() == 0
            && self.processes.iter().all(is_idle)
    }

    pub(super) fn act(&mut self, setup: &Setup, action: Action) {
        let at = self.at(setup.fault);
        match action {
            Action::Tick => self.pass(),
            Action::Join(p, r) => self.processes[p].join(r, at),
            Action::Cancel(p, r) => {
                self.left.cancelled -= 1;
                self.processes[p].cancel(r, at);
            }
            Action::Look(p, r) => {
                self.look(p, r, at);
                if let Request::Permitted(..) = self.processes[p].requests[r] {
                    self.depart(setup, p, r, at);
                }
            }
            Action::Hold(p, r) => self.look(p, r, at),
            Action::Depart(p, r) => self.depart(setup, p, r, at),
            Action::Forfeit(p, r) => {
                self.left.cancelled -= 1;
                self.processes[p].forfeit(r, false, at);
            }
            Action::Wake(p) => self.processes[p].wake(at),
            Action::Call(p) => self.call(setup, p),
            Action::LoseCall(p) => self.lose_call(setup, p),
            Action::Answer(p) => {
                if let Some((_, answer)) = self.processes[p].answers.pop_front() {
                    self.processes[p].answered(answer, at);
                }
            }
            Action::LoseAnswer(p) => self.lose_answer(setup, p),
            Action::Revive(p) => {
                if self.processes[p].is_anybody_without_slot() {
                    setup.seen.note(Event::OutlastsAnOutage);
                }
                self.processes[p].revive(at);
            }
            Action::Hear(p) => {
                if let Some((_, notice)) = self.processes[p].notices.pop_front() {
                    self.processes[p].hear(notice, at);
                }
            }
            Action::Miss(p) => {
                self.left.missed -= 1;
                self.processes[p].excuses += 1;
                self.processes[p].miss(at);
            }
            Action::Pause(p) => {
                self.left.paused -= 1;
                self.processes[p].pause(setup.tick * setup.pause, at);
            }
            Action::Crash(p) => {
                self.left.crashed -= 1;
                self.processes[p].crash();
                for handed in &mut self.handed {
                    if handed.owner == Owner::Process(p) {
                        handed.owner = Owner::Nobody;
                        setup.seen.note(Event::IsLost);
                    }
                }
            }
            Action::Forget => {
                self.ledger = Ledger::new(self.policy.rules());
                self.handed.clear();
            }
        }
        self.forsake(setup);
    }

    /// What is not given back stays charged until its time has passed.
    fn forsake(&mut self, setup: &Setup) {
        for p in 0..self.processes.len() {
            for slot in std::mem::take(&mut self.processes[p].forsaken) {
                self.give_to(slot.at, slot.record, p, Owner::Nobody);
                setup.seen.note(Event::IsLost);
            }
        }
    }

    fn pass(&mut self) {
        if self.is_anybody_due() {
            self.left.late -= 1;
        }
        let at = self.at(None);
        for process in &mut self.processes {
            process.excuses += process.due(at);
        }
        for request in self
            .processes
            .iter_mut()
            .flat_map(|process| &mut process.requests)
        {
            match request {
                Request::Waiting(waiting) => waiting.was_late |= waiting.is_told,
                Request::Permitted(_, waiting) => waiting.was_late = true,
                Request::ToCome | Request::Over => {}
            }
        }
        self.tick += 1;
        let (now, window) = (self.now(), self.window);
        self.departed.retain(|at| at + window > now);
        self.handed.retain(|handed| handed.record + window > now);
        for process in &mut self.processes {
            process.heard.retain(|&(_, until)| until > now);
        }
    }

    fn look(&mut self, p: usize, r: usize, at: At) {
        match self.processes[p].look(r, at) {
            Found::Nothing => {}
            Found::Slot => {
                if self.processes[p].is_anybody_overtaken(r) {
                    self.broken.push(Claim::InOrder);
                }
            }
            Found::Refused => self.broken.push(Claim::NeverDropped),
        }
    }

    /// A request departs, unless its permit has expired.
    fn depart(&mut self, setup: &Setup, p: usize, r: usize, at: At) {
        let now = self.now();
        let Request::Permitted(held, _) = &self.processes[p].requests[r] else {
            return;
        };
        if at.now >= held.expires && setup.fault != Some(Fault::DepartsHoweverLate) {
            return self.processes[p].forfeit(r, true, at);
        }
        let (slot_at, record) = (held.slot.at, held.slot.record);
        let is_forbidden = |&(since, until): &(u64, u64)| slot_at > since && now < until;
        if self.processes[p].heard.iter().any(is_forbidden) {
            self.broken.push(Claim::PausesHold);
        }
        setup.seen.note(Event::Departs);
        self.departed.push(now);
        if self.departed.len() > setup.limit as usize {
            self.broken.push(Claim::NeverMore);
        }
        self.give_to(slot_at, record, p, Owner::Departure);
        self.processes[p].requests[r] = Request::Over;
    }
}
