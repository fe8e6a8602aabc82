//! The requests of one key that wait in this process: [`Queue`].
//!
//! It has no clock and does no I/O: the dispatcher and the requests pass the time and carry its calls to the store.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::task::Waker;
use std::time::Duration;

use slab::Slab;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::algorithm::{Costs, Demand, Holding, Mode, Settlement, Take, Units};
use crate::cost::Cost;
use crate::error::StoreError;
use crate::policy::Policy;
use crate::quota::{CONCURRENT, UnitNames};

/// How long a request without a bound waits for a store that is out.
pub(crate) const OUTAGE_WAIT: Duration = Duration::from_secs(5);

/// A request waits so long for the first answer of the store, even if its bound is earlier.
const FIRST_ANSWER: Duration = Duration::from_millis(100);

/// A pause of this process that the store does not know yet is asked for again after so long.
const PAUSED: Duration = Duration::from_millis(100);

/// Requests with a bound that join a queue within so long share a call.
const GATHER: Duration = Duration::from_millis(5);

/// Requests need not be announced if those before them wait for so long behind the next call.
const LASTS: Duration = Duration::from_millis(200);

/// So many requests whose turn has come may depart at the same time, as tasks on several threads run in parallel. The
/// others keep the order of arrival.
const NEIGHBOURS: usize = 8;

/// If none departs for this part of the guard, twice as many may, as some tasks are not polled.
const STALLS: u32 = 4;

/// How often that happens until one departs.
const MOST_STALLS: u32 = 2;
const SHORTEST_STALL: Duration = Duration::from_micros(100);

/// Other processes learn within so long of a request that waits for a place, as one may be released at any time.
const ANNOUNCE: Duration = Duration::from_millis(100);

/// Work that needs no place any more looks again after so long.
const NO_LEASE: Duration = Duration::from_secs(60 * 60);

/// A store that has refused to renew a lease is asked again after so long.
const REFUSED: Duration = Duration::from_secs(1);

/// The most corrections that are kept while the store cannot be called. Others stay charged.
const MOST_SETTLEMENTS: usize = 1_024;

/// The requests of one key, by arrival, and the call to the store on their behalf.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    requests: Slab<Request>,
    /// The requests that wait for a turn, by their places.
    waiting: BTreeMap<u64, usize>,
    /// The requests that depart at once or not at all.
    tries: BTreeMap<u64, usize>,
    /// The requests that have a turn.
    departing: BTreeMap<u64, usize>,
    stall: Stall,
    stage: Stage,
    unsent: Unsent,
    /// The store may hold a demand of this queue.
    is_announced: bool,
    latest: Standing,
    counters: CounterSet,
    /// The weight of the share of its requests, as the latest one has it; 0 before the first one.
    weight: u32,
    places: PlaceCount,
    /// Nothing departs earlier, as a command of this process says.
    paused_until: Option<Instant>,
    /// The outage of the store, if requests wait for its end.
    out: Option<Out>,
}

/// The news for the store, which the next call carries.
#[derive(Debug, Clone, Default)]
struct Unsent {
    /// The number of the first call to the store whose answer was lost, if that was the latest one.
    lost: Option<u64>,
    settlements: Vec<Settlement>,
    /// See [`Take::moved`].
    moved: i64,
}

/// The places of requests in progress, if a quota limits how many there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct PlaceCount {
    /// The units of requests that have departed and go on.
    held: u32,
    /// The most units that the store has for this queue.
    known: u32,
    /// `None` before the first answer, and if it has ended.
    lease: Option<Lease>,
    /// How often a lease has ended while requests went on.
    losses: u64,
}

/// How long the store keeps places, in local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) until: Instant,
    /// When it has to be renewed.
    pub(crate) renew: Instant,
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
    /// The next call is due then, as the queue has changed since this one.
    next: Option<Instant>,
    settlements: Vec<Settlement>,
    /// The units in progress.
    places: u32,
    is_fallback: bool,
}

/// An answer of the store in local time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    /// The turns of the first requests, in their order, each with the number of requests that share it.
    pub(crate) turns: SmallVec<[(Turn, u32); 1]>,
    /// When each point of the demand that was not granted is expected to depart.
    pub(crate) expected: SmallVec<[Instant; 1]>,
    /// By so much, that may be too late.
    pub(crate) uncertainty: Duration,
    pub(crate) next_call: Option<Instant>,
    pub(crate) lease: Option<Lease>,
    pub(crate) standing: Standing,
}

/// The counters of a policy. Policies that count alike have the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct CounterSet {
    pub(crate) number: u64,
    pub(crate) units: UnitNames,
}

impl CounterSet {
    /// The number of the unit of requests in progress, if a quota limits how many there are.
    fn place(&self) -> Option<usize> {
        self.units.iter().position(|unit| *unit == CONCURRENT)
    }
}

/// The time at which requests may depart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Turn {
    /// The store's clock has certainly reached the granted time.
    pub(crate) from: Instant,
    /// The store's clock has certainly not passed the end of the guard.
    pub(crate) until: Instant,
    /// When the store has recorded the departure; 0 for a grant of the fallback store, which is not corrected.
    pub(crate) recorded: u64,
    /// The counters that have recorded it.
    pub(crate) counters: CounterSet,
    pub(crate) units: Costs,
    /// The guard under which it was granted.
    pub(crate) guard: Duration,
}

/// The state of the quotas at the latest answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    pub(crate) units: UnitNames,
    pub(crate) remaining: Costs,
    pub(crate) reset: Option<Instant>,
    /// When the last request is expected to depart.
    pub(crate) last: Option<Instant>,
    /// Requests that join later overtake some of other processes that wait.
    pub(crate) overtakes: bool,
}

/// The requests with a turn that let those before them depart first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Stall {
    /// Requests from this place on are blocked.
    blocked_from: Option<u64>,
    /// When to look again whether requests depart.
    check: Option<Instant>,
    has_departed: bool,
    /// Requests have missed their turns since one departed: tasks are polled late, and one departs at a time.
    has_missed: bool,
    /// How often others were let past since one departed.
    times: u32,
    /// How many have departed before the first of those that may.
    passed: usize,
    /// How many may depart, at most. Some may have missed their turns.
    ready: usize,
}

/// A request, until its future has got the result.
#[derive(Debug, Clone)]
struct Request {
    place: u64,
    mode: Mode,
    cost: Costs,
    arrival: Instant,
    /// It fails if it cannot depart by then.
    bound: Option<Instant>,
    /// It has lost a turn and was not polled since.
    has_missed: bool,
    fate: Fate,
    waker: Option<Waker>,
}

/// The fate of a request. Most requests wait, and need no room for more.
#[derive(Debug, Clone)]
enum Fate {
    Waiting,
    Departs(Box<Turn>),
    Fails(Box<Refusal>),
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
    /// It was polled too late for this turn, or another request before it was. It is to be polled again.
    Missed(Turn),
    Depart(Turn, Standing),
    Fail(Refusal),
}

/// The store is out.
#[derive(Debug, Clone)]
struct Out {
    since: Instant,
    error: StoreError,
}

/// The tasks to wake once the queue is unlocked.
pub(crate) type Woken = SmallVec<[Waker; 4]>;

impl Turn {
    /// Whether the store has recorded the departure.
    pub(crate) fn is_counted(&self) -> bool {
        self.recorded > 0
    }

    /// The units in progress while its request goes on.
    pub(crate) fn places(&self) -> u32 {
        self.counters.place().map_or(0, |unit| self.units.0[unit])
    }

    /// Another request can use the turn if at least half of its time is left.
    fn is_useful(&self, now: Instant) -> bool {
        let soonest = self.from.max(now);
        self.until
            .checked_duration_since(soonest)
            .is_some_and(|left| 2 * left >= self.until - self.from)
    }
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.lost.is_none() && self.settlements.is_empty()
    }

    /// If there are too many corrections, returns stay charged.
    fn keep(&mut self, settlement: Settlement) {
        if self.settlements.len() < MOST_SETTLEMENTS {
            self.settlements.push(settlement);
        } else if settlement.difference > 0
            && let Some(returned) = self.settlements.iter_mut().find(|it| it.difference < 0)
        {
            *returned = settlement;
        }
    }

    /// Keeps the corrections of a failed call. Units that it may have returned are not returned again.
    fn repeat(&mut self, settlements: Vec<Settlement>, is_outcome_unknown: bool) {
        let settlements = settlements.into_iter();
        settlements
            .filter(|it| !is_outcome_unknown || it.difference > 0)
            .for_each(|it| self.keep(it));
    }
}

impl Queue {
    /// Adds a request that waits, or that departs at once or not at all.
    pub(crate) fn join(
        &mut self,
        mode: Mode,
        place: u64,
        cost: Costs,
        arrival: Instant,
        bound: Option<Instant>,
    ) -> usize {
        let id = self.requests.insert(Request {
            place,
            mode,
            cost,
            arrival,
            bound,
            has_missed: false,
            fate: Fate::Waiting,
            waker: None,
        });
        self.without_turn(mode).insert(place, id);
        if mode == Mode::Try {
            if self.waiting.is_empty() || self.latest.last.is_none() {
                self.call_at(arrival);
            } else {
                self.fail(id, Refusal::Limited(self.latest), &mut Woken::new());
            }
        } else if self.waiting.len() == 1 || matches!(self.stage, Stage::Idle) {
            self.call_at(arrival);
        } else if bound.is_some() {
            self.call_at(arrival + GATHER);
        } else if self.latest.overtakes {
            self.announce(arrival);
        } else if self.counters.place().is_some() {
            self.call_at(arrival + ANNOUNCE);
        }
        id
    }

    /// Counts as this policy does. If that is a change, departures so far stay charged, and the costs of the requests are
    /// expressed in the new units. A request that names no cost in one of them fails.
    pub(crate) fn count_by(&mut self, policy: &Policy, counters: CounterSet, woken: &mut Woken) {
        if self.counters == counters {
            return;
        }
        let before = std::mem::replace(&mut self.counters, counters);
        self.unsent.settlements.clear();
        if counters.place().is_none() {
            (self.places.known, self.places.lease) = (0, None);
        }
        if let Stage::Calling(sent) = &mut self.stage {
            sent.settlements.clear();
        }
        let known = |costs: Costs| {
            let pairs = before.units.iter().copied().zip(costs.0);
            let known = pairs.filter(|(name, _)| counters.units.contains(name));
            known.fold(Cost::default(), |cost, (name, units)| cost.of(name, units))
        };
        let express = |costs| policy.costs_of(&known(costs), None);
        let mut failing = Vec::new();
        for (id, request) in &mut self.requests {
            match express(request.cost) {
                Ok(cost) => request.cost = cost,
                Err(_) if matches!(request.fate, Fate::Waiting) => failing.push(id),
                Err(_) => {}
            }
        }
        for id in failing {
            self.fail(id, Refusal::TooCostly, woken);
        }
    }

    /// The requests that ask in this way and have no turn.
    fn without_turn(&mut self, mode: Mode) -> &mut BTreeMap<u64, usize> {
        match mode {
            Mode::Try => &mut self.tries,
            Mode::Wait | Mode::Peek => &mut self.waiting,
        }
    }

    /// Returns true if no request waits, and nothing has to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        let has_work = !self.requests.is_empty() || self.has_places();
        !has_work && matches!(self.stage, Stage::Idle) && self.unsent.is_empty()
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// When the last request is expected to depart, if it waits without a bound.
    pub(crate) fn unbounded(&self) -> Option<Instant> {
        let (_, &id) = self.waiting.last_key_value()?;
        self.latest
            .last
            .filter(|_| self.requests[id].bound.is_none())
    }

    /// When the dispatcher has to look at the queue.
    pub(crate) fn due(&self) -> Option<Instant> {
        let lease = self.places.lease.filter(|_| self.has_places());
        let times = self.call_due().into_iter().chain(self.stall.check);
        times.chain(lease.map(|lease| lease.until)).min()
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
        match &mut self.stage {
            Stage::Idle => self.stage = Stage::Due(at),
            Stage::Due(due) => *due = at.min(*due),
            Stage::Calling(sent) => sent.next = Some(sent.next.map_or(at, |next| next.min(at))),
        }
    }

    /// Returns true if requests, or corrections alone, wait for the store to come back.
    pub(crate) fn is_out(&self) -> bool {
        let is_kept = matches!(self.stage, Stage::Idle) && !self.unsent.settlements.is_empty();
        self.out.is_some() || is_kept
    }

    /// Other processes learn soon of a request that joined then, with others that join within a few milliseconds. If the
    /// demand that they know lasts longer than until the next call, they learn of it then.
    pub(crate) fn announce(&mut self, arrival: Instant) {
        let is_covered = match (&self.stage, self.latest.last) {
            (Stage::Due(next), Some(last)) => last > *next + LASTS,
            _ => false,
        };
        if !is_covered {
            self.call_at(arrival + GATHER);
        }
    }

    /// Requests took over departures of so many units from another share; below 0, another share did.
    pub(crate) fn took_over(&mut self, units: i64) {
        self.unsent.moved += units;
    }

    pub(crate) fn weight(&self) -> u32 {
        self.weight
    }

    pub(crate) fn weigh(&mut self, weight: u32) {
        self.weight = weight;
    }

    /// Something may have become available early.
    pub(crate) fn nudge(&mut self, now: Instant) {
        if !self.waiting.is_empty() || !self.unsent.settlements.is_empty() {
            self.call_at(now);
        }
    }

    /// An outage of the store has ended.
    pub(crate) fn back(&mut self, now: Instant) {
        self.nudge(now);
        if self.has_places() {
            self.call_at(now);
        }
    }

    /// Returns true if the store keeps places for this queue, or has to.
    pub(crate) fn has_places(&self) -> bool {
        self.places.known > 0 || self.places.held > 0
    }

    /// The units in progress, with those of turns.
    fn places_in_use(&self) -> u32 {
        if self.counters.place().is_none() {
            return 0;
        }
        let turns = self.departing.values();
        let turns = turns.filter_map(|&id| self.requests[id].turn());
        turns.fold(self.places.held, |units, turn| {
            units.saturating_add(turn.places())
        })
    }

    /// Returns true if the store has more places for this queue than are in use.
    fn releases(&self) -> bool {
        self.places.known > 0 && self.places_in_use() < self.places.known
    }

    /// The outcome of a call is unknown: the store may have any number of places for this queue.
    fn forget_known_places(&mut self) {
        if self.counters.place().is_some() {
            self.places.known = u32::MAX;
        }
    }

    /// A request has ended, and so many units are released: at once if others wait, or else within so long.
    pub(crate) fn release(&mut self, units: u32, now: Instant, gather: Duration) {
        self.take_back(units);
        if self.counters.place().is_some() && self.out.is_none() {
            let gather = match self.waiting.is_empty() {
                true => gather,
                false => Duration::ZERO,
            };
            self.call_at(now + gather);
        }
    }

    /// A request that has departed is not sent. Its turn is passed on.
    pub(crate) fn take_back(&mut self, units: u32) {
        self.places.held = self.places.held.saturating_sub(units);
    }

    /// The end of the lease; `None` if it has ended, now or before, after so many losses.
    pub(crate) fn lease_end(&self, losses: u64, now: Instant) -> Option<Instant> {
        if self.counters.place().is_none() {
            // There is no such limit any more.
            return Some(now + NO_LEASE);
        }
        let lease = self.places.lease;
        let lease = lease.filter(|it| now < it.until && self.places.losses == losses)?;
        Some(lease.until)
    }

    pub(crate) fn losses(&self) -> u64 {
        self.places.losses
    }

    /// Notices that the lease has ended, and returns how many units are in progress without it.
    pub(crate) fn lose_lease(&mut self, now: Instant) -> u32 {
        let ended = self.places.lease.take_if(|lease| lease.until <= now);
        if ended.is_none() {
            return 0;
        }
        // The store drops them by itself, but for those of a call that it may execute late.
        if self.places.known < u32::MAX {
            self.places.known = 0;
        }
        self.places.losses += u64::from(self.places.held > 0);
        self.places.held
    }

    /// Begins a call, and returns its contents. Requests of more than the largest cost fail. The fallback store, which
    /// serves the requests in an outage, does not learn what concerns grants of the store.
    pub(crate) fn begin(
        &mut self,
        number: u64,
        largest_costs: &Costs,
        outage: Option<&StoreError>,
        arrived: impl Fn(Instant) -> u64,
        woken: &mut Woken,
    ) -> Take {
        let (mut mode, mut demand) = self.describe(&arrived);
        if demand.cost.is_zero() || !demand.cost.is_within(largest_costs) {
            let too_costly =
                outage.map_or(Refusal::TooCostly, |error| Refusal::Store(error.clone()));
            let is_too_costly = |request: &Request| !request.cost.is_within(largest_costs);
            self.fail_where(is_too_costly, &too_costly, woken);
            (mode, demand) = self.describe(&arrived);
        }
        self.is_announced |= mode == Mode::Wait && !demand.is_empty();
        let last = self.without_turn(mode).last_key_value();
        let last_place = last.map_or(0, |(&place, _)| place);
        let places = self.places_in_use();
        let holding = Holding {
            units: places,
            releases: outage.is_none() && places < self.places.known,
            is_notified: false,
        };
        let (settlements, lost) = match outage {
            Some(_) => (Vec::new(), 0),
            None => (
                std::mem::take(&mut self.unsent.settlements),
                self.unsent.lost.unwrap_or(0),
            ),
        };
        self.stage = Stage::Calling(Sent {
            number,
            mode,
            demand: demand.clone(),
            last_place,
            next: None,
            settlements: settlements.clone(),
            places,
            is_fallback: outage.is_some(),
        });
        let moved = match outage {
            Some(_) => 0,
            None => std::mem::take(&mut self.unsent.moved),
        };
        Take {
            mode,
            demand,
            settlements,
            lost,
            moved,
            holding,
            ..Take::default()
        }
    }

    /// Describes the requests that wait, or if there is none, those that do not wait.
    fn describe(&self, arrived: impl Fn(Instant) -> u64) -> (Mode, Demand) {
        let (mode, asked) = match self.waiting.is_empty() && !self.tries.is_empty() {
            true => (Mode::Try, &self.tries),
            false => (Mode::Wait, &self.waiting),
        };
        let requests = asked.values().map(|&id| {
            let request = &self.requests[id];
            (arrived(request.arrival), request.cost)
        });
        (mode, Demand::new(requests))
    }

    /// Applies the answer to a call. An answer to any other call than the current one is ignored.
    pub(crate) fn answer(&mut self, number: u64, answer: &Answer, now: Instant, woken: &mut Woken) {
        let Some(sent) = self.end_call(number) else {
            return;
        };
        let granted: u32 = answer.turns.iter().map(|(_, requests)| *requests).sum();
        if !sent.is_fallback {
            self.unsent.lost = None;
            let granted = sent.demand.units_of(granted.into()).as_costs();
            let granted = self.counters.place().map_or(0, |unit| granted.0[unit]);
            self.places.known = sent.places.saturating_add(granted);
            // It may have ended before this answer.
            self.lose_lease(now);
            self.places.lease = answer.lease;
        }
        self.out = None;
        let is_first = self.latest.reset.is_none();
        self.latest = answer.standing;
        self.is_announced = answer.next_call.is_some();
        let unused = self.distribute(&sent, answer, now, woken);
        self.let_depart(now, woken);
        match sent.mode {
            Mode::Try => {
                // A refused request is the first that could depart.
                self.latest.last = answer.expected.first().copied();
                // If all that the demand describes are granted, the others were not asked for yet.
                if u64::from(granted) < sent.demand.requests() || self.is_paused(now) {
                    self.fail_tries(sent.last_place, &Refusal::Limited(self.latest), woken);
                }
            }
            Mode::Wait | Mode::Peek => {
                self.latest.last = answer.expected.last().copied();
                let used = sent.demand.units_of(granted.into()) - unused;
                self.refuse_bounded(&sent, answer, used, woken);
                if is_first {
                    // Their bounds hold from now on.
                    self.wake_bounded(woken);
                }
                if !self.waiting.is_empty() {
                    self.fail_tries(u64::MAX, &Refusal::Limited(self.latest), woken);
                }
            }
        }
        self.schedule(answer, now, sent.is_fallback);
    }

    /// Takes back the current call, if it has this number.
    fn end_call(&mut self, number: u64) -> Option<Sent> {
        match std::mem::take(&mut self.stage) {
            Stage::Calling(sent) if sent.number == number => {
                self.stage = sent.next.map_or(Stage::Idle, Stage::Due);
                Some(sent)
            }
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// Gives turns to the requests in their order, and returns the units of those that no request can use.
    fn distribute(
        &mut self,
        sent: &Sent,
        answer: &Answer,
        now: Instant,
        woken: &mut Woken,
    ) -> Units {
        let (mut rank, mut unused) = (0, Units::default());
        for (turn, requests) in &answer.turns {
            for _ in 0..*requests {
                let units = sent.demand.units_of(rank + 1) - sent.demand.units_of(rank);
                rank += 1;
                let turn = Turn {
                    units: units.as_costs(),
                    ..*turn
                };
                if let Some(turn) = self.assign(sent.mode, turn, now, woken) {
                    self.give_back(&turn);
                    unused += units;
                }
            }
        }
        unused
    }

    /// Gives a turn to the first request, if that costs as much. A request whose bound is earlier fails. Returns a turn
    /// that no request can use.
    fn assign(
        &mut self,
        mode: Mode,
        mut turn: Turn,
        now: Instant,
        woken: &mut Woken,
    ) -> Option<Turn> {
        let is_in_units = turn.counters.units == self.counters.units;
        if turn.until < now || self.is_paused(turn.from) || !is_in_units {
            return Some(turn);
        }
        if mode == Mode::Wait {
            turn = self.move_up(turn, now, woken);
        }
        loop {
            let Some((_, &id)) = self.without_turn(mode).first_key_value() else {
                return Some(turn);
            };
            if self.fails_before(id, &turn, woken) {
                continue;
            }
            if self.requests[id].cost != turn.units {
                return Some(turn);
            }
            self.depart(id, turn);
            return None;
        }
    }

    /// Fails a request if its bound is earlier than the turn.
    fn fails_before(&mut self, id: usize, turn: &Turn, woken: &mut Woken) -> bool {
        let bound = self.requests[id].bound;
        let fails = bound.is_some_and(|bound| bound < turn.from);
        if fails {
            let standing = Standing {
                last: Some(turn.from),
                ..self.latest
            };
            self.fail(id, Refusal::Limited(standing), woken);
        }
        fails
    }

    /// A request that waits gets a turn.
    fn depart(&mut self, id: usize, turn: Turn) {
        let request = &mut self.requests[id];
        request.fate = Fate::Departs(Box::new(turn));
        let (mode, place) = (request.mode, request.place);
        self.without_turn(mode).remove(&place);
        self.departing.insert(place, id);
        let from = self.stall.blocked_from;
        self.stall.blocked_from = Some(from.map_or(place, |from| from.min(place)));
    }

    /// Whether a command of this process forbids departures at that time.
    fn is_paused(&self, at: Instant) -> bool {
        self.paused_until.is_some_and(|until| at < until)
    }

    /// Corrects what a past departure cost, by a call at that time. Returns false if other counters have recorded it.
    pub(crate) fn settle(
        &mut self,
        counters: CounterSet,
        settlements: &[Settlement],
        at: Instant,
    ) -> bool {
        let is_recorded = counters == self.counters;
        if is_recorded {
            settlements.iter().for_each(|it| self.unsent.keep(*it));
            if self.out.is_none() {
                self.call_at(at);
            }
        }
        is_recorded
    }

    /// Returns a turn that was not used to the store, with the next call, if its counters are the present ones.
    fn give_back(&mut self, turn: &Turn) {
        if !turn.is_counted() || turn.counters != self.counters {
            return;
        }
        // The next call says how many places are in use.
        let place = turn.counters.place();
        for (unit, units) in turn.units.each().filter(|(unit, _)| Some(*unit) != place) {
            self.unsent.keep(Settlement {
                recorded: turn.recorded,
                unit,
                difference: -i64::from(units),
            });
        }
    }

    /// Fails the requests whose bound is earlier than their expected departure, behind so many units that depart.
    fn refuse_bounded(&mut self, sent: &Sent, answer: &Answer, used: Units, woken: &mut Woken) {
        if answer.standing.units != self.counters.units {
            // The estimates are of other units.
            return;
        }
        let points = sent.demand.points.iter();
        let points: Vec<u64> = points.map(|point| point.units.total()).collect();
        let known = points.len().saturating_sub(answer.expected.len());
        let mut units = used.total();
        let mut refused = Vec::new();
        for (&place, &id) in &self.waiting {
            let request = &self.requests[id];
            let cost = Units::from(request.cost).total();
            units += cost;
            // The last point that is not behind this request: its estimate is never late.
            let nth = points[known..].partition_point(|&point| point <= units);
            let expected = nth.checked_sub(1).map(|nth| answer.expected[nth]);
            if place <= sent.last_place
                && let (Some(bound), Some(expected)) = (request.bound, expected)
                && expected > bound + answer.uncertainty
            {
                // The requests behind it move up.
                units -= cost;
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

    fn wake_bounded(&mut self, woken: &mut Woken) {
        for id in self.waiting.values() {
            let request = &mut self.requests[*id];
            if request.bound.is_some() {
                woken.extend(request.waker.take());
            }
        }
    }

    /// Fails the requests up to this place that do not wait.
    fn fail_tries(&mut self, last: u64, refusal: &Refusal, woken: &mut Woken) {
        while let Some((_, &id)) = self.tries.range(..=last).next() {
            self.fail(id, refusal.clone(), woken);
        }
    }

    /// Decides when the next call is due, after an answer.
    fn schedule(&mut self, answer: &Answer, now: Instant, is_fallback: bool) {
        let has_settlements = !is_fallback && !self.unsent.settlements.is_empty();
        let releases = !is_fallback && self.releases();
        let only_waits = self.tries.is_empty() && !has_settlements && !releases;
        match answer.next_call {
            Some(next) if only_waits && !self.waiting.is_empty() => self.call_at(next),
            // The queue is not kept for the end of the outage.
            _ if is_fallback && self.waiting.is_empty() && self.tries.is_empty() => self.forget(),
            _ => self.reschedule(now),
        }
        if let Some(lease) = answer.lease.filter(|_| self.has_places()) {
            self.call_at(lease.renew);
        }
    }

    /// Calls now if anything is left to ask or to send. During a pause of this process, it asks later.
    fn reschedule(&mut self, now: Instant) {
        let has_to_ask = !self.waiting.is_empty() || !self.tries.is_empty();
        let has_to_send = self.is_announced || !self.unsent.is_empty() || self.releases();
        if has_to_ask && let Some(until) = self.paused_until {
            self.call_at(now.max(until.min(now + PAUSED)));
        } else if has_to_ask || has_to_send {
            self.call_at(now);
        }
    }

    /// A call has failed, and is repeated at `retry`. If the store may have executed it, the next call takes its
    /// grants back.
    pub(crate) fn failed(&mut self, number: u64, is_outcome_unknown: bool, retry: Instant) {
        let Some(sent) = self.end_call(number) else {
            return;
        };
        if is_outcome_unknown {
            self.unsent.lost.get_or_insert(sent.number);
            self.forget_known_places();
        }
        self.unsent.repeat(sent.settlements, is_outcome_unknown);
        self.stage = Stage::Idle;
        self.reschedule(retry);
        if self.has_places() {
            self.call_at(retry);
        }
    }

    /// Other processes have changed the key while it was called. Only requests that wait are asked for again.
    pub(crate) fn overtaken(&mut self, error: &StoreError, woken: &mut Woken) {
        self.fail_tries(u64::MAX, &Refusal::Store(error.clone()), woken);
    }

    /// The store refuses a call for this key.
    pub(crate) fn refused(
        &mut self,
        number: u64,
        error: &StoreError,
        now: Instant,
        woken: &mut Woken,
    ) {
        if self.end_call(number).is_some() {
            self.abandon(error, woken);
            if self.places.held > 0 {
                self.call_at(now + REFUSED);
            }
        }
    }

    /// Fails all requests. The store is not called again until another request joins.
    pub(crate) fn abandon(&mut self, error: &StoreError, woken: &mut Woken) {
        self.fail_where(|_| true, &Refusal::Store(error.clone()), woken);
        self.unsent.settlements.clear();
        self.places.known = 0;
        self.forget();
    }

    /// Calls for nothing more. The store drops the demand after a while. Corrections wait for the next call.
    fn forget(&mut self) {
        (self.unsent.lost, self.is_announced) = (None, false);
        self.stage = Stage::Idle;
    }

    /// The store is out. Requests without an earlier bound fail after a while.
    pub(crate) fn out(&mut self, error: &StoreError, now: Instant, woken: &mut Woken) {
        self.fail_tries(u64::MAX, &Refusal::Store(error.clone()), woken);
        if let Stage::Calling(sent) = std::mem::take(&mut self.stage) {
            self.unsent.lost.get_or_insert(sent.number);
            self.unsent.repeat(sent.settlements, true);
            self.forget_known_places();
        }
        if self.waiting.is_empty() {
            self.forget();
        }
        if self.out.is_none() {
            let error = error.clone();
            self.out = Some(Out { since: now, error });
            // They may wait for the store only so long.
            self.wake_all(woken);
        }
    }

    fn fail_where(
        &mut self,
        fails: impl Fn(&Request) -> bool,
        refusal: &Refusal,
        woken: &mut Woken,
    ) {
        let all = self.waiting.values().chain(self.tries.values()).copied();
        let failing: Vec<usize> = all.filter(|&id| fails(&self.requests[id])).collect();
        for id in failing {
            self.fail(id, refusal.clone(), woken);
        }
    }

    fn fail(&mut self, id: usize, refusal: Refusal, woken: &mut Woken) {
        let request = &mut self.requests[id];
        request.fate = Fate::Fails(Box::new(refusal));
        woken.extend(request.waker.take());
        let (mode, place) = (request.mode, request.place);
        self.without_turn(mode).remove(&place);
    }

    /// The next step of a request.
    pub(crate) fn poll(
        &mut self,
        id: usize,
        now: Instant,
        waker: &Waker,
        woken: &mut Woken,
    ) -> Step {
        let request = &mut self.requests[id];
        request.has_missed = false;
        match &request.fate {
            Fate::Waiting => {
                let out = self.out.as_ref();
                let outage = out.map(|out| (out.since.max(request.arrival) + OUTAGE_WAIT, out));
                // The first answer says whether an early bound can be kept.
                let soonest = match self.latest.reset {
                    None => request.arrival + FIRST_ANSWER,
                    Some(_) => request.arrival,
                };
                let bound = request.bound.map(|bound| bound.max(soonest));
                let bound = bound.or(outage.map(|(until, _)| until));
                if bound.is_none_or(|bound| now < bound) {
                    request.waker = Some(waker.clone());
                    return Step::Wait(bound);
                }
                let refusal = match outage {
                    Some((_, out)) => Refusal::Store(out.error.clone()),
                    None if self.latest.reset.is_none() => {
                        Refusal::Store(StoreError::new("the store has not answered in time"))
                    }
                    None => Refusal::Limited(self.latest),
                };
                self.leave(id, now, woken);
                Step::Fail(refusal)
            }
            Fate::Departs(turn) if now <= turn.until && self.stall.blocks(request.place) => {
                request.waker = Some(waker.clone());
                Step::Wait(None)
            }
            Fate::Departs(turn) if now < turn.from => {
                let from = turn.from;
                request.waker = Some(waker.clone());
                Step::Sleep(from)
            }
            Fate::Departs(turn) if now <= turn.until => {
                let (turn, place) = (**turn, request.place);
                let (mut is_first, mut late) = (true, None);
                for (_, &id) in self.departing.iter().take_while(|(it, _)| **it < place) {
                    is_first &= !self.is_valid(id, now);
                    let before = &self.requests[id];
                    late = late.or(before.turn().filter(|_| self.stall.is_late(before, now)));
                }
                if let Some(late) = late {
                    // Those before it may take its turn.
                    self.expire(now, woken);
                    return Step::Missed(late);
                }
                self.requests.remove(id);
                self.departing.remove(&place);
                self.places.held = self.places.held.saturating_add(turn.places());
                if turn.places() > 0 && self.stage == Stage::Idle {
                    let lease = self.places.lease;
                    self.call_at(lease.map_or(now, |lease| lease.renew));
                }
                let stall = &mut self.stall;
                stall.passed = if is_first { 0 } else { stall.passed + 1 };
                (stall.has_departed, stall.has_missed, stall.times) = (true, false, 0);
                stall.ready = stall.ready.saturating_sub(1);
                if stall.ready <= NEIGHBOURS / 2 {
                    self.let_depart(now, woken);
                }
                Step::Depart(turn, self.latest)
            }
            Fate::Departs(turn) => {
                let turn = **turn;
                self.expire(now, woken);
                Step::Missed(turn)
            }
            Fate::Fails(_) => match self.requests.remove(id).fate {
                Fate::Fails(refusal) => Step::Fail(*refusal),
                _ => unreachable!("it fails"),
            },
        }
    }

    /// Requests that have missed their turns get others. A request that is not polled gets no third one.
    fn expire(&mut self, now: Instant, woken: &mut Woken) {
        self.stall.has_missed = true;
        let stall = self.stall;
        self.replace(|request, _| stall.is_late(request, now), now, woken);
    }

    /// Requests that lose their turns take those of the same cost behind them, so that all keep their order. The last
    /// ones wait again.
    fn replace(
        &mut self,
        loses: impl Fn(&Request, &Turn) -> bool,
        now: Instant,
        woken: &mut Woken,
    ) {
        let mut displaced: HashMap<(Mode, Costs), VecDeque<usize>> = HashMap::new();
        for id in self.departing.values().copied().collect::<Vec<_>>() {
            let request = &mut self.requests[id];
            let alike = (request.mode, request.cost);
            let Some(turn) = request.turn() else {
                continue;
            };
            let is_lost = loses(request, &turn);
            let moves = displaced.contains_key(&alike) && turn.is_useful(now);
            if !is_lost && !moves {
                continue;
            }
            request.has_missed |= is_lost;
            self.wait_again(id, woken);
            let ids = displaced.entry(alike).or_default();
            ids.push_back(id);
            if is_lost {
                self.give_back(&turn);
                self.call_at(now);
                continue;
            }
            while let Some(first) = ids.pop_front() {
                if !self.fails_before(first, &turn, woken) {
                    self.depart(first, turn);
                    break;
                }
            }
        }
        self.let_depart(now, woken);
    }

    /// Lets the next requests depart in their turns.
    fn let_depart(&mut self, now: Instant, woken: &mut Woken) {
        let Some(from) = self.stall.blocked_from else {
            return;
        };
        let most = match (self.stall.times, self.stall.has_missed) {
            (0, true) => 1,
            (times, _) => NEIGHBOURS << times.min(MOST_STALLS),
        };
        let before = self.departing.range(..from);
        let next = self.first_blocked().map_or(now, |next| next.from.max(now));
        let ready = before.filter(|(_, id)| {
            // Behind a miss, a request that departs later holds up no other.
            let is_due = |turn: Turn| now < turn.until && (most > 1 || turn.from <= next);
            self.requests[**id].turn().is_some_and(is_due)
        });
        let ready = ready.take(most).count();
        if ready == 0 {
            self.stall.passed = 0;
        }
        let most = most.saturating_sub(self.stall.passed).max(ready);
        let blocked: SmallVec<[(u64, usize); NEIGHBOURS]> = {
            let next = self.departing.range(from..).take(most - ready + 1);
            next.map(|(&place, &id)| (place, id)).collect()
        };
        let (released, rest) = blocked.split_at(blocked.len().min(most - ready));
        self.stall.blocked_from = rest.first().map(|(place, _)| *place);
        self.stall.ready = ready + released.len();
        for (_, id) in released {
            woken.extend(self.requests[*id].waker.take());
        }
        self.watch(now);
    }

    /// Returns true if the request can still depart in its turn.
    fn is_valid(&self, id: usize, now: Instant) -> bool {
        self.requests[id]
            .turn()
            .is_some_and(|turn| now < turn.until)
    }

    /// Sets when to look after the requests that are blocked.
    fn watch(&mut self, now: Instant) {
        let Some(next) = self.first_blocked() else {
            self.stall.check = None;
            return;
        };
        if self.stall.check.is_none() {
            let first = self
                .departing
                .values()
                .next()
                .and_then(|&id| self.requests[id].turn());
            let first = first.map_or(now, |turn| turn.from.max(now));
            let stall = (next.guard / STALLS).max(SHORTEST_STALL);
            self.stall.check = Some(next.until.min(first + stall));
        }
    }

    fn first_blocked(&self) -> Option<Turn> {
        let (_, &id) = self.departing.range(self.stall.blocked_from?..).next()?;
        self.requests[id].turn()
    }

    /// Lets requests past others whose tasks are not polled. Requests that had to wait until their turns had passed
    /// wait again; yields the guard that was too short for them.
    pub(crate) fn check(&mut self, now: Instant, woken: &mut Woken) -> Option<Duration> {
        let missed = self.first_blocked().filter(|turn| turn.until < now);
        if missed.is_some() {
            self.expire(now, woken);
        }
        if self.stall.check.is_some_and(|due| due <= now) {
            self.stall.times += u32::from(!self.stall.has_departed);
            (self.stall.check, self.stall.has_departed) = (None, false);
        }
        self.let_depart(now, woken);
        missed.map(|turn| turn.guard)
    }

    /// A request is cancelled, or fails at its bound. Its turn goes to the next request, or back to the store. Returns
    /// true if it had one.
    pub(crate) fn leave(&mut self, id: usize, now: Instant, woken: &mut Woken) -> bool {
        let request = self.requests.remove(id);
        match request.fate {
            Fate::Waiting => {
                self.without_turn(request.mode).remove(&request.place);
                self.withdraw(now);
            }
            Fate::Departs(turn) => {
                self.departing.remove(&request.place);
                self.pass_on(Mode::Wait, *turn, now, woken);
                return true;
            }
            Fate::Fails(_) => {}
        }
        false
    }

    /// The first turn of this cost whose request has not departed.
    pub(crate) fn first_turn(&self, cost: Costs, now: Instant) -> Option<(usize, Turn)> {
        let turns = self.departing.values().filter_map(|&id| {
            let turn = self.requests[id].turn()?;
            (turn.units == cost && turn.is_useful(now)).then_some((id, turn))
        });
        turns.min_by_key(|(_, turn)| turn.from)
    }

    /// Takes the first turn of this cost from its request, which waits again.
    pub(crate) fn give_up(&mut self, cost: Costs, now: Instant, woken: &mut Woken) -> Option<Turn> {
        let (id, turn) = self.first_turn(cost, now)?;
        self.wait_again(id, woken);
        self.let_depart(now, woken);
        self.call_at(now);
        Some(turn)
    }

    /// A request that has a turn loses it, and waits in its place.
    fn wait_again(&mut self, id: usize, woken: &mut Woken) {
        let request = &mut self.requests[id];
        request.fate = Fate::Waiting;
        woken.extend(request.waker.take());
        let (mode, place) = (request.mode, request.place);
        self.departing.remove(&place);
        self.without_turn(mode).insert(place, id);
    }

    /// A turn is not used: the next request takes it, or it goes back to the store.
    pub(crate) fn pass_on(&mut self, mode: Mode, turn: Turn, now: Instant, woken: &mut Woken) {
        let unused = if turn.is_useful(now) {
            self.assign(mode, turn, now, woken)
        } else {
            Some(turn)
        };
        if let Some(turn) = unused {
            self.give_back(&turn);
            self.call_at(now);
        }
        self.let_depart(now, woken);
        self.withdraw(now);
    }

    /// Other processes do not wait for a demand that is left in the store. A queue that has become empty in an outage
    /// is not kept for what it has to send.
    fn withdraw(&mut self, now: Instant) {
        if self.waiting.is_empty() && (self.is_announced || self.out.is_some()) {
            self.call_at(now);
        }
    }

    /// Requests of the same cost that have later turns than this one move up, so that all depart in their order.
    /// Returns the turn that is left.
    fn move_up(&mut self, mut free: Turn, now: Instant, woken: &mut Woken) -> Turn {
        let mut later: SmallVec<[usize; NEIGHBOURS]> = SmallVec::new();
        for &id in self.departing.values().rev() {
            let request = &self.requests[id];
            let Some(turn) = request.turn() else { continue };
            let is_alike = request.mode == Mode::Wait && turn.units == free.units;
            if !is_alike || !turn.is_useful(now) {
                continue;
            }
            if turn.from <= free.from {
                break;
            }
            later.push(id);
        }
        if later.is_empty() || !free.is_useful(now) {
            return free;
        }
        for id in later.into_iter().rev() {
            let request = &mut self.requests[id];
            if let Fate::Departs(turn) = &mut request.fate
                && turn.from > free.from
            {
                std::mem::swap(&mut **turn, &mut free);
                woken.extend(request.waker.take());
            }
        }
        free
    }

    /// Nothing departs until then. Requests that have an earlier turn wait again.
    pub(crate) fn pause(&mut self, until: Instant, now: Instant, woken: &mut Woken) {
        self.paused_until = self.paused_until.max(Some(until));
        self.replace(|_, turn| turn.from < until, now, woken);
    }

    /// The store knows of the pause: only turns that it has granted before have to be dropped, until then.
    pub(crate) fn pause_known(&mut self, until: Instant) {
        self.paused_until = self.paused_until.map(|paused| paused.min(until));
    }

    /// Pauses of this process have ended.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.paused_until = None;
        self.nudge(now);
    }

    /// How much of a unit was left at the last answer.
    pub(crate) fn remaining(&self, unit: usize) -> u32 {
        self.latest.remaining.0[unit]
    }

    /// The corrections that were not sent yet.
    pub(crate) fn settlements(&self) -> &[Settlement] {
        &self.unsent.settlements
    }

    /// Wakes all requests, which look at where they stand.
    pub(crate) fn wake_all(&mut self, woken: &mut Woken) {
        woken.extend(
            self.requests
                .iter_mut()
                .filter_map(|(_, request)| request.waker.take()),
        );
    }
}

impl Stall {
    fn blocks(&self, place: u64) -> bool {
        self.blocked_from.is_some_and(|from| place >= from)
    }

    /// Returns true if a request has missed its turn, and may get another one.
    fn is_late(&self, request: &Request, now: Instant) -> bool {
        let has_passed = request.turn().is_some_and(|turn| turn.until < now);
        has_passed && (!request.has_missed || self.blocks(request.place))
    }
}

impl Request {
    fn turn(&self) -> Option<Turn> {
        match &self.fate {
            Fate::Departs(turn) => Some(**turn),
            Fate::Waiting | Fate::Fails(_) => None,
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
