//! The steps of the model: [`Step`].

use std::cell::RefCell;
use std::num::NonZeroU64;
use std::sync::{Arc, LazyLock};
use std::task::{Wake, Waker};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::world::*;
use crate::algorithm::{Command, Costs, Mode, Origin, Strict, Take, Units};
use crate::error::StoreError;
use crate::queue::{self, Answer, Arrival, Departing, Lease, Standing, Turn};

/// How long a process is stopped, and how long a pause lasts, in ticks.
const STOP: u64 = 4;
const PAUSE: u32 = 3;

/// A request is in progress for at most so long, in ticks.
const WORKS: u64 = 2;

/// After so many ticks without a reply, a call counts as lost.
const TIMEOUT: u64 = 2;

/// After so many ticks, a call or a reply that is lost does not arrive any more. It is longer than a lease.
const LATEST: u64 = 14;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Tick {
        is_punctual: bool,
    },
    Join(usize),
    /// The task of a request runs.
    Poll(usize),
    Cancel(usize),
    Forfeit(usize),
    Finish(usize),
    Send(usize),
    /// A call of a process reaches the store, by its index among those in flight.
    Execute(usize, usize),
    /// A reply reaches its process.
    Answer(usize, usize),
    LoseCall(usize),
    LoseReply(usize),
    /// A process finds that a call is lost.
    GiveUp(usize),
    /// The store does not execute the call of a process, and says so: it refuses it, or it is out.
    Refuse(usize, bool),
    /// A process finds that the store is out.
    Out(usize),
    Back(usize),
    Crash(usize),
    Stop(usize),
    Pause(usize),
    Resume(usize),
    LoseState,
}

thread_local! {
    /// The requests that were woken in this step.
    static WOKEN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Wakes the request with this index.
struct Bell(usize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        WOKEN.with_borrow_mut(|woken| woken.push(self.0));
    }
}

static WAKERS: LazyLock<Vec<Waker>> =
    LazyLock::new(|| (0..15).map(|nth| Arc::new(Bell(nth)).into()).collect());

fn instant(micros: u64) -> Instant {
    *START + std::time::Duration::from_micros(micros.saturating_sub(EPOCH))
}

fn micros(at: Instant) -> u64 {
    EPOCH + at.saturating_duration_since(*START).as_micros() as u64
}

impl World {
    fn runs(&self, process: usize) -> bool {
        let it = &self.processes[process];
        !it.has_crashed && it.stopped_until <= self.tick
    }

    /// The possible steps, and whether each is due before time passes.
    pub(super) fn steps(&self, setup: &Setup) -> Vec<(bool, Step)> {
        let (now, left) = (self.now(), self.left);
        let mut steps = Vec::new();
        let mut add = |is_due: bool, is_possible: bool, step: Step| {
            steps.extend(is_possible.then_some((is_due, step)));
        };
        for (p, process) in self.processes.iter().enumerate() {
            for (nth, call) in process.calls.iter().enumerate() {
                add(!call.is_late, true, Step::Execute(p, nth));
            }
            if !self.runs(p) {
                continue;
            }
            for (nth, reply) in process.replies.iter().enumerate() {
                let arrives = !reply.is_late || process.lost.is_none();
                add(!reply.is_late, arrives, Step::Answer(p, nth));
            }
            let is_call_due = process.queue.due().is_some_and(|due| due <= now);
            add(true, is_call_due, Step::Send(p));
            let is_given_up = process.lost.is_some_and(|(_, at)| at <= self.tick);
            add(true, is_given_up, Step::GiveUp(p));
            let may_lose = left[LOST] > 0 && process.lost.is_none();
            let has_call = process.calls.iter().any(|call| !call.is_late);
            add(false, may_lose && has_call, Step::LoseCall(p));
            for is_out in [true, false] {
                let may_refuse = left[REFUSED] > 0 && has_call;
                add(false, may_refuse, Step::Refuse(p, is_out));
            }
            let has_reply = process.replies.iter().any(|reply| !reply.is_late);
            add(false, may_lose && has_reply, Step::LoseReply(p));
            let is_active = self.is_waiting(setup, p);
            add(true, process.queue.out.is_some(), Step::Back(p));
            let is_calling = process.queue.calls.sent.is_some();
            let may_be_out = left[OUT] > 0 && is_active && !is_calling;
            add(false, may_be_out, Step::Out(p));
            add(false, left[CRASHED] > 0 && is_active, Step::Crash(p));
            add(false, left[STOPPED] > 0 && is_active, Step::Stop(p));
            add(false, left[PAUSED] > 0 && is_active, Step::Pause(p));
            add(false, process.paused_until > self.tick, Step::Resume(p));
        }
        let mut has_new = [false; 2];
        for (nth, (request, &(p, _))) in self.requests.iter().zip(&setup.requests).enumerate() {
            if !self.runs(p) {
                continue;
            }
            // The requests of a process join in their order.
            let is_new = *request == Request::New;
            add(true, is_new && !has_new[p], Step::Join(nth));
            has_new[p] |= is_new;
            if let Request::Joined {
                is_awake, timer, ..
            } = request
            {
                let is_over = timer.is_some_and(|at| at <= now);
                add(true, *is_awake || is_over, Step::Poll(nth));
                add(false, left[CANCELLED] > 0, Step::Cancel(nth));
            }
            if let Request::Working(until) = request {
                add(*until <= self.tick, true, Step::Finish(nth));
            }
            let is_due = |turn: &Turn| turn.from <= now && now <= turn.until;
            let may_depart = self.turn(setup, nth).is_some_and(is_due);
            add(false, left[FORFEITED] > 0 && may_depart, Step::Forfeit(nth));
        }
        let may_be_lost = left[LOST_STATE] > 0 && !self.departed.is_empty();
        add(false, may_be_lost, Step::LoseState);
        steps
    }

    pub(super) fn apply(&mut self, setup: &Setup, step: Step) {
        let now = self.now();
        match step {
            Step::Tick { is_punctual } => {
                self.left[LATE] -= u8::from(!is_punctual);
                self.tick += 1;
                for process in &mut self.processes {
                    process.calls_in_tick = 0;
                    let oldest = self.tick.saturating_sub(LATEST);
                    process.calls.retain(|it| !it.is_late || it.sent > oldest);
                    process.replies.retain(|it| !it.is_late || it.sent > oldest);
                }
            }
            Step::Join(nth) => self.join(setup, nth),
            Step::Poll(nth) => self.poll(setup, nth, false),
            Step::Forfeit(nth) => {
                self.left[FORFEITED] -= 1;
                self.poll(setup, nth, true);
            }
            Step::Finish(nth) => {
                self.requests[nth] = Request::Departed;
                if setup.fault != "releases-nothing" {
                    let queue = &mut self.processes[setup.requests[nth].0].queue;
                    queue.release_places(setup.cost(nth) as u32, now, std::time::Duration::ZERO);
                }
            }
            Step::Cancel(nth) => {
                self.left[CANCELLED] -= 1;
                self.cancel(setup, nth);
            }
            Step::Send(p) => self.send(setup, p),
            Step::Execute(p, nth) => self.execute(setup, p, nth),
            Step::Answer(p, nth) => self.answer(setup, p, nth),
            Step::LoseCall(p) => {
                let process = &mut self.processes[p];
                if let Some(call) = process.calls.iter_mut().find(|call| !call.is_late) {
                    call.is_late = true;
                    self.is_leak_excused |= !call.take.corrections.settlements.is_empty();
                    let number = call.take.number;
                    self.lose(p, number);
                }
            }
            Step::LoseReply(p) => {
                let process = &mut self.processes[p];
                if let Some(reply) = process.replies.iter_mut().find(|reply| !reply.is_late) {
                    reply.is_late = true;
                    let number = reply.number;
                    self.lose(p, number);
                }
            }
            Step::GiveUp(p) => {
                let process = &mut self.processes[p];
                if let Some((number, _)) = process.lost.take() {
                    process.queue.call_failed(number, &lost(), now);
                }
            }
            Step::Refuse(p, is_out) => {
                self.left[REFUSED] -= 1;
                let process = &mut self.processes[p];
                let is_sent = |call: &Call| !call.is_late;
                if let Some(nth) = process.calls.iter().position(is_sent) {
                    // Nothing can be corrected in a value that is not recognized.
                    self.is_leak_excused |= !is_out;
                    let error = StoreError::new("not executed");
                    let error = if is_out { error } else { error.no_outage() };
                    let number = process.calls.remove(nth).take.number;
                    process.queue.call_failed(number, &error, now);
                }
            }
            Step::Out(p) => {
                self.left[OUT] -= 1;
                let queue = &mut self.processes[p].queue;
                queue.begin_outage(&StoreError::new("out"), now);
                // Without requests, nothing is kept for a store that is out.
                self.is_leak_excused |= queue.waiting.is_empty();
            }
            Step::Back(p) => {
                let queue = &mut self.processes[p].queue;
                queue.out = None;
                queue.end_outage(now);
            }
            Step::Crash(p) => {
                self.left[CRASHED] -= 1;
                let process = &mut self.processes[p];
                process.has_crashed = true;
                process.replies.clear();
                process.lost = None;
                let works = |request: &Request| matches!(request, Request::Working(_));
                let all = self.requests.iter_mut().zip(&setup.requests);
                let own = all.filter(|(it, (owner, _))| *owner == p && works(it));
                own.for_each(|(it, _)| *it = Request::Departed);
            }
            Step::Stop(p) => {
                self.left[STOPPED] -= 1;
                self.processes[p].stopped_until = self.tick + STOP;
            }
            Step::Pause(p) => self.pause(setup, p),
            Step::Resume(p) => {
                self.store.control(Command::Resume, self.store_now());
                for process in &mut self.processes {
                    process.paused_until = 0;
                }
                self.processes[p].queue.resume(now);
            }
            Step::LoseState => {
                self.left[LOST_STATE] -= 1;
                self.store = setup.empty_store();
                self.since = self.store_now();
                self.is_leak_excused = true;
            }
        }
        if setup.fault != "wakes-nobody" {
            self.wake();
        }
        if let Step::Execute(..) | Step::Pause(_) | Step::Resume(_) | Step::LoseState = step {
            self.value = self.store.encode();
        }
        self.check_order(setup);
    }

    fn turn(&self, setup: &Setup, nth: usize) -> Option<&Turn> {
        let queue = &self.processes[setup.requests[nth].0].queue;
        match self.requests[nth] {
            Request::Joined { arrival, .. } => Some(&*queue.departing.requests.get(&arrival)?.turn),
            _ => None,
        }
    }

    /// The requests without a turn, of each process.
    fn waiting(&self, setup: &Setup) -> Vec<usize> {
        let is_waiting = |nth: &usize| {
            let queue = &self.processes[setup.requests[*nth].0].queue;
            matches!(self.requests[*nth], Request::Joined { arrival, .. } if queue.waiting.contains_key(&arrival))
        };
        (0..self.requests.len()).filter(is_waiting).collect()
    }

    /// No request waits behind another whose turn it can take.
    fn check_order(&mut self, setup: &Setup) {
        let now = self.now();
        let alike = |nth: usize| (setup.requests[nth].0, setup.cost(nth));
        let is_overtaken = self.waiting(setup).into_iter().any(|nth| {
            let mut behind = nth + 1..self.requests.len();
            behind.any(|other| {
                let turn = self.turn(setup, other).filter(|turn| turn.is_useful(now));
                let waits = setup.requests[other].1 != Kind::Tries;
                turn.is_some() && waits && alike(other) == alike(nth)
            })
        });
        if is_overtaken {
            self.broken = Some(Claim::InOrder);
        }
    }

    fn wake(&mut self) {
        let woken = self.processes.iter_mut().map(|it| it.queue.take_woken());
        woken.flatten().for_each(Waker::wake);
        for nth in WOKEN.with_borrow_mut(std::mem::take) {
            if let Request::Joined { is_awake, .. } = &mut self.requests[nth] {
                *is_awake = true;
            }
        }
    }

    fn lose(&mut self, p: usize, number: u64) {
        self.left[LOST] -= 1;
        self.processes[p].lost = Some((number, self.tick + TIMEOUT));
    }

    fn join(&mut self, setup: &Setup, nth: usize) {
        let (now, (p, kind)) = (self.now(), setup.requests[nth]);
        let queue = &mut self.processes[p].queue;
        let (at, number) = (now, nth as u64);
        let arrival = Arrival { at, number };
        let (mode, bound) = match kind {
            Kind::Waits => (Mode::Wait, None),
            Kind::Bounded => (Mode::Wait, Some(now + TICK * BOUND)),
            Kind::Tries => (Mode::Try, None),
        };
        let cost = setup.cost(nth) as u32;
        queue.join(mode, arrival, cost.into(), bound);
        self.requests[nth] = Request::Joined {
            arrival,
            is_awake: true,
            timer: None,
        };
    }

    fn poll(&mut self, setup: &Setup, nth: usize, is_forfeited: bool) {
        let (now, (p, _)) = (self.now(), setup.requests[nth]);
        let Request::Joined { mut arrival, .. } = self.requests[nth] else {
            return;
        };
        let queue = &mut self.processes[p].queue;
        let mut bound = queue.waiting.get(&arrival).and_then(|it| it.bound);
        if let Some(Departing { request, turn }) = queue.departing.requests.get_mut(&arrival) {
            bound = request.bound;
            if setup.fault == "departs-before-turn" {
                turn.from = now;
            }
        }
        let step = loop {
            match queue.poll(arrival, now, &WAKERS[nth]) {
                queue::Step::Missed { .. } => {
                    if setup.fault == "requeues-behind-others"
                        && let Some(request) = queue.waiting.remove(&arrival)
                    {
                        arrival.number += 10;
                        queue.waiting.insert(arrival, request);
                    }
                }
                step => break step,
            }
        };
        let joined = |timer| Request::Joined {
            arrival,
            is_awake: false,
            timer,
        };
        self.requests[nth] = match step {
            queue::Step::Wait(until) => joined(until),
            queue::Step::Fail(_) => Request::Failed,
            queue::Step::Depart(turn, _) if is_forfeited => {
                queue.subtract_held(turn.places());
                queue.reassign(Mode::Wait, turn, now);
                Request::Cancelled
            }
            queue::Step::Depart(turn, _) => {
                self.depart(setup, nth, bound, &turn);
                match setup.has_places {
                    true => Request::Working(self.tick + WORKS),
                    false => Request::Departed,
                }
            }
            queue::Step::Missed { .. } => unreachable!("it was polled again"),
        };
    }

    fn depart(&mut self, setup: &Setup, nth: usize, bound: Option<Instant>, turn: &Turn) {
        let (at, p) = (self.store_now(), setup.requests[nth].0);
        let recorded = turn.recorded.map_or(0, u64::from);
        let within = recorded - GUARD..=recorded;
        let is_in_time = within.contains(&at) || setup.fault == "records-no-guard";
        for _ in 0..setup.cost(nth) {
            let mut granted = self.granted.iter();
            match granted.position(|unit| *unit == (p, recorded)) {
                Some(index) if is_in_time => _ = self.granted.swap_remove(index),
                _ => self.broken = Some(Claim::InTurn),
            }
            self.departed.push(self.tick);
            self.used.push(recorded);
        }
        if self.processes[p].paused_until > self.tick {
            self.broken = Some(Claim::PausesHold);
        }
        if bound.is_some_and(|bound| bound < turn.from) {
            self.broken = Some(Claim::EveryRequestEnds);
        }
    }

    fn cancel(&mut self, setup: &Setup, nth: usize) {
        let now = self.now();
        let queue = &mut self.processes[setup.requests[nth].0].queue;
        if let Request::Joined { arrival, .. } = self.requests[nth] {
            queue.is_announced &= setup.fault != "keeps-demand-of-cancelled";
            queue.cancel(arrival, now);
        }
        self.requests[nth] = Request::Cancelled;
    }

    fn send(&mut self, setup: &Setup, p: usize) {
        let now = self.now();
        let process = &mut self.processes[p];
        process.queue.expire_lease(now);
        if process.queue.call_due().is_none_or(|due| due > now) {
            process.queue.check(now);
            return;
        }
        process.number += 1;
        process.calls_in_tick += 1;
        let (number, most) = (process.number, u32::from(setup.limit).into());
        let asked = process.queue.begin_call(number, &most, None, micros);
        let strict = setup.is_strict.then_some(Strict {
            known: process.known,
            clock_was_set: false,
        });
        let take = Take {
            process: setup.number_of(p),
            number,
            strict,
            guard: GUARD,
            horizon: horizon(asked.mode),
            ..asked
        };
        process.calls.push(Call {
            take,
            sent: self.tick,
            is_late: false,
        });
    }

    fn execute(&mut self, setup: &Setup, p: usize, nth: usize) {
        let now = self.store_now();
        let Call {
            mut take,
            sent,
            is_late,
        } = self.processes[p].calls.remove(nth);
        match setup.fault {
            "settles-twice" => take.corrections.settlements.extend_from_within(..),
            "records-no-guard" => take.guard = 0,
            "ignores-numbers" => {
                self.store.announced.iter_mut().for_each(|it| it.number = 0);
            }
            _ => {}
        }
        let mut announced = self.store.announced.iter();
        let is_first = announced.all(|it| it.process != take.process);
        let origin = Origin {
            server: self.since,
            since: self.since,
        };
        self.store.verify(0, &take, origin, now);
        let mut announced = self.store.announced.iter();
        let has_higher = setup.has_levels
            && p > 0
            && announced.any(|it| {
                let is_first = it.process == setup.number_of(0);
                is_first && !it.demand.is_empty() && now <= it.deadline
            });
        let times = take.times(0, now);
        let next = (self.store).earliest(&times, now, Units::default(), Costs::from(1).into());
        let taken = self.store.take(0, &take, now);
        if has_higher && taken.grants.first().is_some_and(|grant| grant.at <= next) {
            self.broken = Some(Claim::InLevels);
        }
        // A late call that the store cannot know to be late strands what it grants.
        let is_newest = take.number == self.processes[p].number;
        self.is_leak_excused |= is_late && is_first && !is_newest;
        let mut requests = 0;
        for grant in &taken.grants {
            let before = take.demand.units_of(requests);
            requests += u64::from(grant.requests);
            let units = (take.demand.units_of(requests) - before).total() as usize;
            let granted = std::iter::repeat_n((p, grant.recorded), units);
            self.granted.extend(granted);
        }
        if !self.processes[p].has_crashed {
            self.processes[p].replies.push(Reply {
                number: take.number,
                sent,
                taken,
                is_late,
            });
        }
    }

    fn answer(&mut self, setup: &Setup, p: usize, nth: usize) {
        let now = self.now();
        let process = &mut self.processes[p];
        let reply = process.replies.remove(nth);
        let Reply {
            number,
            sent,
            taken,
            ..
        } = reply;
        let at = |tick: u64| *START + TICK * tick as u32;
        let lease = setup.has_places.then(|| Lease {
            until: at(sent + LEASE),
            renew: at(sent + 2 * LEASE / 3),
        });
        let current = process.queue.calls.sent.as_ref().map(|sent| sent.number);
        let number = match (setup.fault, current) {
            ("applies-lost-replies", Some(current)) => current,
            _ => number,
        };
        if taken.is_outdated {
            process.queue.call_failed(number, &lost(), now);
            return;
        }
        if current == Some(number) {
            process.known = taken.known;
        }
        let turns = taken.grants.iter().map(|grant| {
            let late = TICK * u32::from(setup.fault == "records-no-guard");
            let turn = Turn {
                from: instant(grant.at),
                until: instant(grant.recorded) + late,
                recorded: NonZeroU64::new(grant.recorded),
                counters: setup.counters(),
                units: Default::default(),
                guard: TICK,
            };
            (turn, grant.requests)
        });
        let answer = Answer {
            turns: turns.collect::<SmallVec<[_; 1]>>(),
            expected: taken.expected.iter().map(|&at| instant(at)).collect(),
            uncertainty: std::time::Duration::ZERO,
            next_call: (taken.next_call > 0).then(|| instant(taken.next_call)),
            lease,
            standing: Standing {
                reset: Some(*START),
                ..Standing::default()
            },
        };
        process.queue.apply_answer(number, &answer, now);
    }

    fn pause(&mut self, setup: &Setup, p: usize) {
        let now = self.now();
        self.left[PAUSED] -= 1;
        let span = TICK * PAUSE;
        let command = Command::Pause {
            span: span.as_micros() as u64,
            evidence: u64::MAX,
        };
        self.store.control(command, self.store_now());
        let process = &mut self.processes[p];
        process.paused_until = self.tick + u64::from(PAUSE);
        if setup.fault != "keeps-turns-in-pause" {
            process.queue.pause(now + span, now);
        }
    }
}

fn lost() -> StoreError {
    StoreError::new("lost").outcome_unknown()
}
