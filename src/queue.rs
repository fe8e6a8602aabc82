//! The requests of one key that wait in this process: [`Queue`].
//!
//! It has no clock and does no I/O: the dispatcher and the requests pass the time and carry its calls to the store.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::task::Waker;
use std::time::Duration;

use slab::Slab;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::state::{Demand, Mode, Settlement};
use crate::store::StoreError;

/// How long a request without a bound waits for a store that is out.
pub(crate) const OUTAGE_WAIT: Duration = Duration::from_secs(5);

/// A pause of this process that the store does not know yet is asked for again after so long.
const PAUSED: Duration = Duration::from_millis(100);

/// So many requests whose turn has come may depart at the same time, as tasks on several threads run in parallel.
const NEIGHBOURS: usize = 8;

/// If none departs for this part of the guard, twice as many may, as some tasks are not polled.
const STALLS: u32 = 4;

/// How often that happens until one departs.
const MOST_STALLS: u32 = 2;
const SHORTEST_STALL: Duration = Duration::from_micros(100);

/// The most corrections that are kept while the store cannot be called. Others stay charged.
const MOST_SETTLEMENTS: usize = 1_024;

/// The requests of one key, by priority and arrival, and the call to the store on their behalf.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    requests: Requests,
    /// The requests that wait for a turn, by their places.
    waiting: BTreeMap<u64, usize>,
    /// The requests that may depart in their turns, by their places.
    ready: BTreeMap<u64, usize>,
    /// The requests that have a turn and let those before them depart first.
    blocked: BTreeMap<u64, usize>,
    stall: Stall,
    /// The requests that depart at once or not at all.
    tries: Vec<usize>,
    stage: Stage,
    /// The number of the first call whose answer was lost, if that was the latest one.
    lost: Option<u64>,
    settlements: Vec<Settlement>,
    /// The store may hold a demand of this queue.
    is_announced: bool,
    latest: Standing,
    /// Nothing departs earlier, as a command of this process says.
    paused_until: Option<Instant>,
    /// Since when the store has been out, if requests wait for it.
    out: Option<Out>,
}

/// Where the queue stands towards the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
enum Stage {
    /// Nothing is to be asked.
    #[default]
    Idle,
    /// The next call is due then.
    Due(Instant),
    Calling(Sent),
}

/// A call whose answer is awaited.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Sent {
    number: u64,
    mode: Mode,
    demand: Demand,
    /// Requests behind this place joined later.
    last_place: u64,
}

/// The contents of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) settlements: Vec<Settlement>,
    pub(crate) mode: Mode,
    pub(crate) demand: Demand,
    pub(crate) lost: u64,
}

/// An answer of the store in local time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Answer {
    /// The turns of the first requests, in their order, each with the number of requests that share it.
    pub(crate) turns: SmallVec<[(Turn, u32); 1]>,
    /// When each point of the demand that was not granted is expected to depart.
    pub(crate) expected: SmallVec<[Instant; 8]>,
    /// By so much, that may be too late.
    pub(crate) uncertainty: Duration,
    pub(crate) next_call: Option<Instant>,
    pub(crate) standing: Standing,
}

/// The time at which requests may depart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Turn {
    /// The store's clock has certainly reached the granted time.
    pub(crate) from: Instant,
    /// The store's clock has certainly not passed the end of the guard.
    pub(crate) until: Instant,
    /// When the store has recorded the departure.
    pub(crate) recorded: u64,
    pub(crate) units: u32,
    pub(crate) source: Source,
}

/// The store that has granted a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Store,
    /// The embedded store that serves requests while the store is out.
    Fallback,
}

/// What the latest answer says of the quotas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    pub(crate) remaining: u32,
    pub(crate) reset: Option<Instant>,
    /// When the last request is expected to depart.
    pub(crate) last: Option<Instant>,
}

/// How long no request has departed that may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Stall {
    /// When to look again.
    check: Option<Instant>,
    has_departed: bool,
    /// How often others were let past since one departed.
    times: u32,
}

/// A request, until its future has got the result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Request {
    place: u64,
    cost: u32,
    arrival: Instant,
    /// It fails if it cannot depart by then.
    bound: Option<Instant>,
    fate: Fate,
    waker: Wakes,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Fate {
    Waiting,
    Departs(Turn),
    Fails(Refusal),
}

/// Why a request does not depart.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    /// It would have to wait for so long.
    Limited(Standing),
    /// So many requests wait already.
    Full(usize),
    /// It costs more than the quotas allow at once.
    TooCostly,
    Store(StoreError),
}

/// The next step of a request.
#[derive(Debug)]
pub(crate) enum Step {
    /// It waits, and looks again at its bound.
    Wait(Option<Instant>),
    /// It may depart then.
    Sleep(Instant),
    Depart(Turn, Standing),
    /// Its turn has passed, and it waits again.
    Forfeit(Turn),
    Fail(Refusal),
}

/// The store is out.
#[derive(Debug, Clone)]
struct Out {
    since: Instant,
    error: StoreError,
}

#[derive(Debug, Clone, Default)]
struct Requests(Slab<Request>);

/// The task of a request.
#[derive(Debug, Clone, Default)]
struct Wakes(Option<Waker>);

/// The tasks to wake once the queue is unlocked.
pub(crate) type Woken = SmallVec<[Waker; 4]>;

impl Queue {
    /// Adds a request that waits.
    pub(crate) fn join(
        &mut self,
        place: u64,
        cost: u32,
        arrival: Instant,
        bound: Option<Instant>,
    ) -> usize {
        let id = self.add(place, cost, arrival, bound);
        self.waiting.insert(place, id);
        let is_first = self.waiting.len() == 1;
        if bound.is_some() || is_first || matches!(self.stage, Stage::Idle) {
            self.call_at(arrival);
        }
        id
    }

    /// Adds a request that departs at once or not at all.
    pub(crate) fn attempt(&mut self, place: u64, cost: u32, arrival: Instant) -> usize {
        let id = self.add(place, cost, arrival, None);
        if self.waiting.is_empty() || self.latest.last.is_none() {
            self.tries.push(id);
            self.call_at(arrival);
        } else {
            self.requests.0[id].fate = Fate::Fails(Refusal::Limited(self.latest));
        }
        id
    }

    fn add(&mut self, place: u64, cost: u32, arrival: Instant, bound: Option<Instant>) -> usize {
        let (fate, waker) = (Fate::Waiting, Wakes::default());
        self.requests.0.insert(Request {
            place,
            cost,
            arrival,
            bound,
            fate,
            waker,
        })
    }

    /// Whether no request waits, and nothing has to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.0.is_empty() && matches!(self.stage, Stage::Idle) && self.lost.is_none()
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// When the dispatcher has to look at the queue.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.call_due().into_iter().chain(self.check_due()).min()
    }

    /// When the next call is due.
    pub(crate) fn call_due(&self) -> Option<Instant> {
        match self.stage {
            Stage::Due(at) => Some(at),
            Stage::Idle | Stage::Calling(_) => None,
        }
    }

    /// The next call is due then, unless it is earlier.
    fn call_at(&mut self, at: Instant) {
        self.stage = match std::mem::take(&mut self.stage) {
            Stage::Idle => Stage::Due(at),
            Stage::Due(due) => Stage::Due(due.min(at)),
            calling @ Stage::Calling(_) => calling,
        };
    }

    /// Something may have become available early.
    pub(crate) fn nudge(&mut self, now: Instant) {
        if !self.waiting.is_empty() {
            self.call_at(now);
        }
    }

    /// Begins a call. Requests of more than the largest cost fail.
    pub(crate) fn begin(
        &mut self,
        number: u64,
        largest_cost: u32,
        arrived: impl Fn(Instant) -> u64,
        woken: &mut Woken,
    ) -> Ask {
        self.fail_where(
            |request| request.cost > largest_cost,
            &Refusal::TooCostly,
            woken,
        );
        let mode = if self.waiting.is_empty() && !self.tries.is_empty() {
            Mode::Try
        } else {
            Mode::Wait
        };
        let ids: Vec<usize> = match mode {
            Mode::Try => self.tries.clone(),
            _ => self.waiting.values().copied().collect(),
        };
        let requests = ids.iter().map(|&id| {
            let request = &self.requests.0[id];
            (arrived(request.arrival), request.cost)
        });
        let demand = Demand::new(requests);
        let last_place = ids.last().map_or(0, |&id| self.requests.0[id].place);
        self.is_announced |= mode == Mode::Wait && !demand.is_empty();
        self.stage = Stage::Calling(Sent {
            number,
            mode,
            demand: demand.clone(),
            last_place,
        });
        let settlements = std::mem::take(&mut self.settlements);
        Ask {
            settlements,
            mode,
            demand,
            lost: self.lost.unwrap_or(0),
        }
    }

    /// Applies the answer to a call. An answer to any other call than the current one is ignored.
    pub(crate) fn answer(&mut self, number: u64, answer: &Answer, now: Instant, woken: &mut Woken) {
        let Some(sent) = self.end_call(number) else {
            return;
        };
        self.lost = None;
        self.out = None;
        self.latest = answer.standing;
        self.latest.last = answer.expected.last().copied();
        let turns = self.distribute(&sent, answer, now);
        for turn in turns {
            self.give_back(&turn);
        }
        self.release(now, woken);
        match sent.mode {
            Mode::Wait => {
                self.is_announced = answer.next_call.is_some();
                self.refuse_bounded(&sent, answer, woken);
                self.refuse_tries(woken);
                self.schedule(&sent, answer, now);
            }
            _ => {
                // A refused request is the first that could depart.
                self.latest.last = answer.expected.first().copied();
                self.refuse_sent_tries(&sent, woken);
                self.reschedule(now);
            }
        }
    }

    /// Takes back the current call, if it has this number.
    fn end_call(&mut self, number: u64) -> Option<Sent> {
        match std::mem::take(&mut self.stage) {
            Stage::Calling(sent) if sent.number == number => Some(sent),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// Gives turns to the requests in their order, and returns those that no request can use.
    fn distribute(&mut self, sent: &Sent, answer: &Answer, now: Instant) -> Vec<Turn> {
        let mut unused = Vec::new();
        let mut rank = 0;
        for (turn, requests) in &answer.turns {
            for _ in 0..*requests {
                let units = sent.demand.units_of(rank + 1) - sent.demand.units_of(rank);
                rank += 1;
                let turn = Turn {
                    units: units as u32,
                    ..*turn
                };
                let is_paused = self.paused_until.is_some_and(|until| turn.from < until);
                let is_used = !is_paused && self.assign(sent.mode, turn, now);
                if !is_used {
                    unused.push(turn);
                }
            }
        }
        unused
    }

    /// Gives a turn to the first request, if that costs no more.
    fn assign(&mut self, mode: Mode, turn: Turn, now: Instant) -> bool {
        if turn.until < now {
            return false;
        }
        let first = match mode {
            Mode::Try => self.tries.first().copied(),
            _ => self.waiting.first_key_value().map(|(_, &id)| id),
        };
        let Some(id) = first else {
            return false;
        };
        let request = &mut self.requests.0[id];
        if request.cost > turn.units {
            return false;
        }
        let surplus = turn.units - request.cost;
        self.blocked.insert(request.place, id);
        request.fate = Fate::Departs(Turn {
            units: request.cost,
            ..turn
        });
        match mode {
            Mode::Try => drop(self.tries.remove(0)),
            _ => drop(self.waiting.pop_first()),
        }
        if surplus > 0 {
            self.give_back(&Turn {
                units: surplus,
                ..turn
            });
        }
        true
    }

    /// Returns a turn that was not used to the store, with the next call. The fallback keeps it charged.
    fn give_back(&mut self, turn: &Turn) {
        if turn.source == Source::Store && self.settlements.len() < MOST_SETTLEMENTS {
            let difference = -i64::from(turn.units);
            self.settlements.push(Settlement {
                recorded: turn.recorded,
                difference,
            });
        }
    }

    /// Fails the requests whose bound is earlier than their expected departure.
    fn refuse_bounded(&mut self, sent: &Sent, answer: &Answer, woken: &mut Woken) {
        let points: Vec<u64> = sent.demand.points.iter().map(|point| point.units).collect();
        let known = points.len().saturating_sub(answer.expected.len());
        let granted: u64 = answer
            .turns
            .iter()
            .map(|(_, requests)| u64::from(*requests))
            .sum();
        let mut units = sent.demand.units_of(granted);
        let mut refused = Vec::new();
        for (&place, &id) in &self.waiting {
            let request = &self.requests.0[id];
            units += u64::from(request.cost);
            // The last point that is not behind this request: its estimate is never late.
            let nth = points[known..].partition_point(|&point| point <= units);
            let expected = nth.checked_sub(1).map(|nth| answer.expected[nth]);
            if place <= sent.last_place
                && let (Some(bound), Some(expected)) = (request.bound, expected)
                && expected > bound + answer.uncertainty
            {
                refused.push((id, expected));
            }
        }
        for (id, expected) in refused {
            let standing = Standing {
                last: Some(expected),
                ..self.latest
            };
            self.fail(id, Refusal::Limited(standing), woken);
        }
    }

    /// Fails the requests of a call that would not wait.
    fn refuse_sent_tries(&mut self, sent: &Sent, woken: &mut Woken) {
        let is_sent = |id: &&usize| self.requests.0[**id].place <= sent.last_place;
        let refused: Vec<usize> = self.tries.iter().filter(is_sent).copied().collect();
        for id in refused {
            self.fail(id, Refusal::Limited(self.latest), woken);
        }
    }

    /// Fails the requests that do not wait, while others do.
    fn refuse_tries(&mut self, woken: &mut Woken) {
        if !self.waiting.is_empty() {
            for id in std::mem::take(&mut self.tries) {
                self.fail(id, Refusal::Limited(self.latest), woken);
            }
        }
    }

    /// Decides when the next call is due, after an answer.
    fn schedule(&mut self, sent: &Sent, answer: &Answer, now: Instant) {
        let is_new = |(_, &id): (&u64, &usize)| self.requests.0[id].bound.is_some();
        let has_new_bound = self.waiting.range(sent.last_place + 1..).any(is_new);
        match answer.next_call {
            Some(next)
                if !self.waiting.is_empty()
                    && !has_new_bound
                    && self.settlements.is_empty()
                    && self.tries.is_empty() =>
            {
                self.call_at(next);
            }
            _ => self.reschedule(now),
        }
    }

    /// Calls now if anything is left to ask or to send, or later during a pause.
    fn reschedule(&mut self, now: Instant) {
        let has_to_ask = !self.waiting.is_empty() || !self.tries.is_empty();
        if has_to_ask || self.is_announced || self.lost.is_some() || !self.settlements.is_empty() {
            let paused_until = self
                .paused_until
                .map_or(now, |until| until.min(now + PAUSED));
            self.call_at(now.max(paused_until));
        }
    }

    /// A call has failed. If it may have been executed, its grants are taken back by the next one.
    pub(crate) fn failed(&mut self, number: u64, is_outcome_unknown: bool) -> bool {
        let Some(sent) = self.end_call(number) else {
            return false;
        };
        if is_outcome_unknown {
            self.lost.get_or_insert(sent.number);
        }
        true
    }

    /// The next call is due then, if there is anything to ask.
    pub(crate) fn retry(&mut self, at: Instant) {
        self.reschedule(at);
    }

    /// The store is out. Requests without an earlier bound fail after a while.
    pub(crate) fn out(&mut self, error: &StoreError, now: Instant, woken: &mut Woken) {
        if self.waiting.is_empty() {
            // The store forgets the demand, and keeps what it has charged.
            (self.lost, self.is_announced) = (None, false);
            self.settlements.clear();
        }
        self.stage = Stage::Idle;
        if self.out.is_none() {
            self.out = Some(Out {
                since: now,
                error: error.clone(),
            });
        }
        for id in std::mem::take(&mut self.tries) {
            self.fail(id, Refusal::Store(error.clone()), woken);
        }
        self.wake_all(woken);
    }

    /// Fails all requests that wait.
    pub(crate) fn fail_all(&mut self, error: &StoreError, woken: &mut Woken) {
        self.fail_where(|_| true, &Refusal::Store(error.clone()), woken);
    }

    /// Fails the requests that cost more than the quotas allow while the store is out.
    pub(crate) fn fail_costly(&mut self, largest_cost: u32, error: &StoreError, woken: &mut Woken) {
        self.fail_where(
            |request| request.cost > largest_cost,
            &Refusal::Store(error.clone()),
            woken,
        );
    }

    fn fail_where(
        &mut self,
        fails: impl Fn(&Request) -> bool,
        refusal: &Refusal,
        woken: &mut Woken,
    ) {
        let all = self.waiting.values().chain(&self.tries).copied();
        let failing: Vec<usize> = all.filter(|&id| fails(&self.requests.0[id])).collect();
        for id in failing {
            self.fail(id, refusal.clone(), woken);
        }
    }

    fn fail(&mut self, id: usize, refusal: Refusal, woken: &mut Woken) {
        let request = &mut self.requests.0[id];
        request.fate = Fate::Fails(refusal);
        woken.extend(request.waker.0.take());
        let place = request.place;
        if self.waiting.remove(&place).is_none() {
            self.tries.retain(|&other| other != id);
        }
    }

    /// The next step of a request.
    pub(crate) fn poll(
        &mut self,
        id: usize,
        now: Instant,
        waker: &Waker,
        woken: &mut Woken,
    ) -> Step {
        let request = &mut self.requests.0[id];
        match &request.fate {
            Fate::Waiting => {
                let out = self.out.as_ref();
                let outage = out.map(|out| (out.since.max(request.arrival) + OUTAGE_WAIT, out));
                let bound = request
                    .bound
                    .into_iter()
                    .chain(outage.as_ref().map(|(until, _)| *until))
                    .min();
                if bound.is_none_or(|bound| now < bound) {
                    request.waker.0 = Some(waker.clone());
                    return Step::Wait(bound);
                }
                let refusal = match outage {
                    Some((_, out)) => Refusal::Store(out.error.clone()),
                    None => Refusal::Limited(self.latest),
                };
                self.leave(id, now, woken);
                Step::Fail(refusal)
            }
            Fate::Departs(turn)
                if now < turn.from && !self.blocked.contains_key(&request.place) =>
            {
                let from = turn.from;
                request.waker.0 = Some(waker.clone());
                Step::Sleep(from)
            }
            Fate::Departs(turn) if now < turn.until => {
                let turn = *turn;
                let place = request.place;
                if self.blocked.contains_key(&place) {
                    request.waker.0 = Some(waker.clone());
                    return Step::Wait(None);
                }
                self.requests.0.remove(id);
                self.ready.remove(&place);
                (self.stall.has_departed, self.stall.times) = (true, 0);
                self.release(now, woken);
                Step::Depart(turn, self.latest)
            }
            Fate::Departs(turn) => {
                let turn = *turn;
                request.waker.0 = Some(waker.clone());
                self.requeue(id, &turn);
                self.call_again(turn.until - turn.from, now);
                Step::Forfeit(turn)
            }
            Fate::Fails(_) => match self.requests.0.remove(id).fate {
                Fate::Fails(refusal) => Step::Fail(refusal),
                _ => unreachable!("it fails"),
            },
        }
    }

    /// Lets the next requests depart in their turns, so many at a time. The others keep the order of arrival.
    pub(crate) fn release(&mut self, now: Instant, woken: &mut Woken) {
        let is_valid = |id: &&usize| {
            self.requests.0[**id]
                .turn()
                .is_some_and(|turn| now < turn.until)
        };
        let most = NEIGHBOURS << self.stall.times.min(MOST_STALLS);
        let ready = self.ready.values().filter(is_valid).count();
        for _ in ready..most {
            let Some((place, id)) = self.blocked.pop_first() else {
                break;
            };
            self.ready.insert(place, id);
            woken.extend(self.requests.0[id].waker.0.take());
        }
        self.watch(now);
    }

    /// When to look whether requests that may depart do so, as others wait for them.
    fn check_due(&self) -> Option<Instant> {
        if self.blocked.is_empty() {
            None
        } else {
            self.stall.check
        }
    }

    /// Lets requests past others whose tasks are not polled. Requests that had to wait until their turns had passed
    /// wait again; yields the guard that was too short for them.
    pub(crate) fn check(&mut self, now: Instant, woken: &mut Woken) -> Option<Duration> {
        let mut guard = None;
        while let Some((_, &id)) = self.blocked.first_key_value()
            && let Some(turn) = self.requests.0[id].turn()
            && turn.until <= now
        {
            let missed = turn.until - turn.from;
            guard = Some(missed);
            self.requeue(id, &turn);
            self.call_again(missed, now);
        }
        if self.check_due().is_some_and(|due| due <= now) {
            self.stall.times += u32::from(!self.stall.has_departed);
            (self.stall.check, self.stall.has_departed) = (None, false);
        }
        self.release(now, woken);
        guard
    }

    /// Sets when to look after the requests that are blocked.
    fn watch(&mut self, now: Instant) {
        let Some((_, &id)) = self.blocked.first_key_value() else {
            self.stall.check = None;
            return;
        };
        if let (None, Some(next)) = (self.stall.check, self.requests.0[id].turn()) {
            let ready = self
                .ready
                .values()
                .filter_map(|&id| self.requests.0[id].turn());
            let first = ready.map(|turn| turn.from).min().unwrap_or(now);
            let stall = ((next.until - next.from) / STALLS).max(SHORTEST_STALL);
            self.stall.check = Some(next.until.min(now.max(first) + stall));
        }
    }

    /// A request whose turn was not used waits again at its old place.
    fn requeue(&mut self, id: usize, turn: &Turn) {
        self.give_back(turn);
        let request = &mut self.requests.0[id];
        request.fate = Fate::Waiting;
        self.waiting.insert(request.place, id);
        self.ready.remove(&request.place);
        self.blocked.remove(&request.place);
    }

    /// Calls for requests that have missed their turns. If others of the same batch are not back yet, this waits for
    /// them, for at most a guard, so that they keep their places.
    fn call_again(&mut self, guard: Duration, now: Instant) {
        let mut ready = self
            .ready
            .values()
            .filter_map(|&id| self.requests.0[id].turn());
        let others_return = ready.any(|turn| turn.until <= now && now < turn.until + guard);
        self.call_at(if others_return { now + guard } else { now });
    }

    /// A request is cancelled, or fails at its bound. Its turn goes to the next request, or back to the store.
    pub(crate) fn leave(&mut self, id: usize, now: Instant, woken: &mut Woken) {
        let request = self.requests.0.remove(id);
        match request.fate {
            Fate::Waiting => {
                if self.waiting.remove(&request.place).is_none() {
                    self.tries.retain(|&other| other != id);
                }
                if self.waiting.is_empty() && self.is_announced {
                    self.call_at(now);
                }
            }
            Fate::Departs(turn) => {
                self.ready.remove(&request.place);
                self.blocked.remove(&request.place);
                self.pass_on(turn, now, woken);
            }
            Fate::Fails(_) => {}
        }
    }

    /// A turn is not used: the next request takes it, or it goes back to the store.
    pub(crate) fn pass_on(&mut self, turn: Turn, now: Instant, woken: &mut Woken) {
        if !self.assign(Mode::Wait, turn, now) {
            self.give_back(&turn);
            self.call_at(now);
        }
        self.release(now, woken);
    }

    /// Nothing departs until then. Requests that have a turn wait again.
    pub(crate) fn pause(&mut self, until: Instant, now: Instant, woken: &mut Woken) {
        self.paused_until = self.paused_until.max(Some(until));
        let ready = std::mem::take(&mut self.ready).into_values();
        let departing: Vec<usize> = ready
            .chain(std::mem::take(&mut self.blocked).into_values())
            .collect();
        for id in departing {
            if let Fate::Departs(turn) = self.requests.0[id].fate {
                self.requeue(id, &turn);
                self.call_at(now);
            }
        }
        self.wake_all(woken);
    }

    /// Pauses of this process have ended.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.paused_until = None;
        self.nudge(now);
    }

    /// The corrections that are to be sent before the state is looked at.
    pub(crate) fn take_settlements(&mut self) -> Vec<Settlement> {
        std::mem::take(&mut self.settlements)
    }

    /// Wakes all requests, which look at where they stand.
    pub(crate) fn wake_all(&mut self, woken: &mut Woken) {
        woken.extend(
            self.requests
                .0
                .iter_mut()
                .filter_map(|(_, request)| request.waker.0.take()),
        );
    }
}

impl Request {
    fn turn(&self) -> Option<Turn> {
        match self.fate {
            Fate::Departs(turn) => Some(turn),
            Fate::Waiting | Fate::Fails(_) => None,
        }
    }
}

impl PartialEq for Requests {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().eq(other.0.iter())
    }
}

impl Eq for Requests {}

impl Hash for Requests {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|request| request.hash(state));
    }
}

// Tasks are no part of the state: the model of the protocol compares queues.
impl PartialEq for Wakes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Wakes {}

impl Hash for Wakes {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialEq for Refusal {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Limited(one), Self::Limited(other)) => one == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl Eq for Refusal {}

impl Hash for Refusal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
    }
}

impl PartialEq for Out {
    fn eq(&self, other: &Self) -> bool {
        self.since == other.since
    }
}

impl Eq for Out {}

impl Hash for Out {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.since.hash(state);
    }
}
