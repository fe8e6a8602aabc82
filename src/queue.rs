//! The requests of one key, level and share that wait in this process: [`Queue`].
//!
//! It has no clock and does no I/O: the dispatcher and the requests pass the time and carry its calls to the store.

use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::num::NonZeroU64;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

pub(crate) use self::departures::NEIGHBOURS;
use self::departures::{Departing, Departures};

use crate::algorithm::{Corrections, Costs, Demand, Holding, Mode, Settlement, Take, Units};
use crate::cost::{Cost, Remaining};
use crate::error::StoreError;
use crate::policy::Policy;
use crate::quota::{CONCURRENT, UnitNames};

/// A call is dropped that was not answered after so long.
pub(crate) const LONGEST_CALL: Duration = Duration::from_secs(5);

/// How long a request without a bound waits for a store that is out.
pub(crate) const OUTAGE_WAIT: Duration = Duration::from_secs(5);

/// A request that does not wait fails after so long, if the answers of the store are too late to use.
const LONGEST_TRY: Duration = Duration::from_secs(1);

/// The longest time between calls of a queue that this process has paused, as the store may not know of the pause or its end.
const PAUSE_CHECK: Duration = Duration::from_millis(100);

/// How long a call waits for further requests after one with a bound has joined.
const GATHER: Duration = Duration::from_millis(5);

/// A new request waits for the next call if the announced demand is expected to last so much longer than until that call.
const ANNOUNCED_MARGIN: Duration = Duration::from_millis(200);

/// How long the call for a new request waits if a place may be released at any time.
const GATHER_PLACES: Duration = Duration::from_millis(100);

/// The lease of work if the policy no longer limits how many requests are in progress.
const UNLIMITED_LEASE: Duration = Duration::from_secs(60 * 60);

/// The queue is checked so long after the end of a turn that was not used.
const AFTER_MISS: Duration = Duration::from_micros(1);

/// A request that is polled within so long after its turn shows that tasks are busy.
const JUST_OVER: Duration = Duration::from_millis(100);

/// The pause before a call that has failed is repeated.
const RETRY: Duration = Duration::from_millis(50);

/// The number of places that the store may have for a queue after a lost answer.
const UNKNOWN: u32 = u32::MAX;

/// The pause before a call is repeated: after a refusal, for requests in progress; in a conflict, for corrections alone.
const SLOW_RETRY: Duration = Duration::from_secs(1);

/// Corrections are dropped if their calls fail for so long.
const LONGEST_CONFLICT: Duration = Duration::from_secs(10);

/// When a request arrived, and a number that orders requests of the same time: its key in the maps of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) number: u64,
}

/// The requests of one key, level and share, by arrival, and the call to the store on their behalf.
///
/// From [`join`](Self::join) until its future ends, a request is in exactly one of the maps `waiting`, `tries`, `departing` and
/// `failed`. While requests wait, a call is under way or due, except in an outage without a fallback store: then `out` is set,
/// and the dispatcher calls [`end_outage`](Self::end_outage).
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    /// The requests that wait for a turn, without those that depart at once or not at all.
    waiting: Requests,
    /// The requests that depart at once or not at all.
    tries: Requests,
    /// The requests that have a turn.
    departing: Departures,
    /// The requests that fail when they are polled next.
    failed: BTreeMap<Arrival, Refusal>,
    calls: Calls,
    /// The report of the next call.
    unsent: Corrections,
    /// The store may have an announcement of requests that wait here.
    is_announced: bool,
    /// The latest answer; without a reset before the first one.
    latest: Standing,
    /// When it arrived.
    latest_at: Option<Instant>,
    /// The counters of all costs and turns above, except of turns that were granted before a change.
    counters: CounterSet,
    places: PlaceCount,
    /// The end of a pause that a command of this process has begun.
    paused_until: Option<Instant>,
    /// The beginning of an outage and its error, if requests wait for its end.
    out: Option<(Instant, StoreError)>,
    /// The time and the error of the first call that failed, if the store answers, and none has succeeded since.
    conflict: Option<(Instant, StoreError)>,
}

/// The places of requests in progress, if a quota limits how many there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct PlaceCount {
    /// The units of requests that have departed and go on. Those of requests with a turn are counted beside.
    held: u32,
    /// The most units that the store may have for this queue; [`UNKNOWN`] after a lost answer.
    stored: u32,
    /// `None` before the first answer, and once it has ended.
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

/// The calls to the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Calls {
    /// The call whose answer is awaited.
    sent: Option<Sent>,
    /// When the next one is due, if anything is to be asked.
    next: Option<Instant>,
}

/// A call whose answer is awaited.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Sent {
    number: u64,
    mode: Mode,
    demand: Demand,
    /// The newest request that the demand describes.
    newest: Option<Arrival>,
    corrections: Corrections,
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
    /// These estimates may be too late by this.
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
    pub(crate) fn place(&self) -> Option<usize> {
        self.units.iter().position(|unit| *unit == CONCURRENT)
    }
}

/// The time at which a request may depart: a grant in local time. Each turn is used by one request, reassigned to another one, or
/// returned to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Turn {
    /// The store's clock has certainly reached the granted time.
    pub(crate) from: Instant,
    /// The store's clock has certainly not passed the end of the guard.
    pub(crate) until: Instant,
    /// When the store has recorded the departure; `None` for a grant of the fallback store, which is not corrected.
    pub(crate) recorded: Option<NonZeroU64>,
    /// The counters that have recorded it.
    pub(crate) counters: CounterSet,
    /// The cost of its request. Zero in an answer, and once a missed turn was returned to the store.
    pub(crate) units: Costs,
    /// The guard under which it was granted.
    pub(crate) guard: Duration,
}

/// The state of the quotas at the latest answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    pub(crate) remaining: Remaining,
    pub(crate) reset: Option<Instant>,
    /// When the last request is expected to depart, or could have departed if it was refused.
    pub(crate) expected: Option<Instant>,
    /// Requests that join later overtake some of other processes that wait.
    pub(crate) overtakes: bool,
}

/// Boxed, as the nodes of a map are partly empty.
type Requests = BTreeMap<Arrival, Box<Request>>;

/// A request that waits or has a turn.
#[derive(Debug, Clone)]
struct Request {
    mode: Mode,
    cost: Costs,
    /// It fails if it cannot depart by then.
    bound: Option<Instant>,
    /// It has lost a turn and was not polled since.
    has_missed: bool,
    /// It was polled too late for its turn, as the first of those that are polled.
    was_late: bool,
    waker: Option<Waker>,
}

/// Why a request does not depart.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    /// It would have to wait for so long.
    Limited(Standing),
    /// So many requests wait already. The state of the quotas, if it is known.
    Full(usize, Option<Standing>),
    /// It costs more than the quotas allow at once.
    TooCostly,
    Store(StoreError),
}

/// The next step of a request.
#[derive(Debug)]
pub(crate) enum Step {
    /// It waits, and looks again at its bound or at the start of its turn.
    Wait(Option<Instant>),
    /// It was polled too late for this turn, or another request before it was. It is to be polled again. If tasks are busy, a
    /// longer guard helps.
    Missed {
        turn: Turn,
        is_busy: bool,
    },
    Depart(Turn, Standing),
    Fail(Refusal),
}

/// The tasks to wake once the queue is unlocked.
pub(crate) type Woken = SmallVec<[Waker; 4]>;

impl Turn {
    /// Whether the store has recorded the departure.
    pub(crate) fn is_counted(&self) -> bool {
        self.recorded.is_some()
    }

    /// The units in progress while its request goes on.
    pub(crate) fn places(&self) -> u32 {
        self.counters.place().map_or(0, |unit| self.units.0[unit])
    }

    /// Returns true if a request that is polled now shows that tasks are busy. If it is much later, its task may have done
    /// something else.
    pub(crate) fn is_just_over(&self, now: Instant) -> bool {
        now < self.until + JUST_OVER
    }

    /// Another request can use the turn if at least half of its time is left.
    fn is_useful(&self, now: Instant) -> bool {
        let soonest = self.from.max(now);
        let left = self.until.checked_duration_since(soonest);
        left.is_some_and(|left| 2 * left >= self.until - self.from)
    }
}

impl Queue {
    /// Adds a request that waits, or that departs at once or not at all.
    pub(crate) fn join(&mut self, mode: Mode, new: Arrival, cost: Costs, bound: Option<Instant>) {
        let now = new.at;
        let request = Box::new(Request {
            mode,
            cost,
            bound,
            has_missed: false,
            was_late: false,
            waker: None,
        });
        self.without_turn(mode).insert(new, request);
        if mode == Mode::Try {
            if self.waiting.is_empty() || self.latest.expected.is_none() {
                self.call_by(now);
            } else {
                self.fail(new, Refusal::Limited(self.latest));
            }
        } else if self.waiting.len() == 1 || self.calls == Calls::default() {
            self.call_by(now);
        } else if bound.is_some() {
            self.call_by(now + GATHER);
        } else if self.latest.overtakes {
            self.announce(now);
        } else if self.counters.place().is_some() {
            self.call_by(now + GATHER_PLACES);
        }
    }

    /// Counts as this policy does. After a change of the counters, past departures stay charged, and the costs of requests are
    /// converted to the new units. A request without a cost in one of them fails.
    pub(crate) fn use_policy(&mut self, policy: &Policy, counters: CounterSet, now: Instant) {
        if self.counters == counters {
            return;
        }
        let before = std::mem::replace(&mut self.counters, counters);
        self.unsent.drop_settlements();
        self.unsent.lost = 0;
        if counters.place().is_none() {
            (self.places.stored, self.places.lease) = (0, None);
            if self.waiting.is_empty() {
                // It was due to renew the lease.
                self.calls.next = None;
            }
        } else if before.place().is_none() && self.places_in_use() > 0 {
            // The limit is back. The next call takes the places again.
            let until = now + policy.lease().unwrap_or_default();
            self.places.lease = Some(Lease { until, renew: now });
            self.call_by(now);
        }
        if let Some(sent) = &mut self.calls.sent {
            sent.corrections.drop_settlements();
            if before.place() != counters.place() {
                // Its answer has the grants in the former units, and another lease or none.
                sent.places = UNKNOWN;
            }
        }
        let known = |costs: Costs| {
            let pairs = before.units.iter().copied().zip(costs.0);
            let known = pairs.filter(|(name, _)| counters.units.contains(name));
            known.fold(Cost::default(), |cost, (name, units)| cost.of(name, units))
        };
        for request in self.requests() {
            let cost = policy.costs_of(&known(request.cost), None);
            request.cost = cost.unwrap_or_default();
        }
        self.fail_where(|request| request.cost.is_zero(), &Refusal::TooCostly);
        if self.waiting.is_empty() {
            // Requests that were announced may have failed.
            self.reschedule(now);
        }
    }

    /// The requests that wait or have a turn.
    fn requests(&mut self) -> impl Iterator<Item = &mut Box<Request>> {
        let departing = self.departing.requests.values_mut();
        let waiting = self.waiting.values_mut().chain(self.tries.values_mut());
        waiting.chain(departing.map(|it| &mut it.request))
    }

    /// The tasks to wake once the queue is unlocked.
    pub(crate) fn take_woken(&mut self) -> Woken {
        std::mem::take(&mut self.departing.woken)
    }

    /// The requests of this mode that have no turn.
    fn without_turn(&mut self, mode: Mode) -> &mut Requests {
        match mode {
            Mode::Try => &mut self.tries,
            Mode::Wait | Mode::Peek => &mut self.waiting,
        }
    }

    /// Removes a request that has no turn.
    fn take_without_turn(&mut self, arrival: Arrival) -> Option<Box<Request>> {
        let waiting = self.waiting.remove(&arrival);
        waiting.or_else(|| self.tries.remove(&arrival))
    }

    /// Returns true if no request waits, and nothing has to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        let none_ends = self.departing.requests.is_empty() && self.failed.is_empty();
        let has_work = self.has_to_ask() || !none_ends || self.has_places();
        !has_work && self.calls == Calls::default() && self.unsent.is_empty()
    }

    /// Returns true if requests have no turn.
    fn has_to_ask(&self) -> bool {
        !self.waiting.is_empty() || !self.tries.is_empty()
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The state of the quotas at the latest answer, if there was one.
    pub(crate) fn standing(&self) -> Option<Standing> {
        Some(self.latest).filter(|latest| latest.reset.is_some())
    }

    /// How much was left at the latest answer, if it arrived later than that.
    pub(crate) fn remaining_since(&self, since: Option<Instant>) -> Option<Remaining> {
        (self.latest_at > since).then_some(self.latest.remaining)
    }

    /// When the last request is expected to depart, if it has no bound.
    pub(crate) fn expected_without_bound(&self) -> Option<Instant> {
        let (_, request) = self.waiting.last_key_value()?;
        self.latest.expected.filter(|_| request.bound.is_none())
    }

    /// When the dispatcher has to look at the queue.
    pub(crate) fn due(&self) -> Option<Instant> {
        let lease = self.places.lease.filter(|_| self.has_places());
        let check = self.departing.stall.check;
        let missed = self.first_unused().map(|turn| turn.until + AFTER_MISS);
        let times = self.call_due().into_iter().chain(check).chain(missed);
        times.chain(lease.map(|lease| lease.until)).min()
    }

    /// When the next call is due.
    pub(crate) fn call_due(&self) -> Option<Instant> {
        self.calls.next.filter(|_| self.calls.sent.is_none())
    }

    /// Makes the next call due then, unless it is due earlier.
    fn call_by(&mut self, at: Instant) {
        self.calls.next = Some(self.calls.next.map_or(at, |next| next.min(at)));
    }

    /// Returns true if requests or corrections wait for the end of an outage.
    pub(crate) fn waits_for_store(&self) -> bool {
        let is_kept = self.calls == Calls::default() && !self.unsent.settlements.is_empty();
        self.out.is_some() || is_kept
    }

    /// Announces a new request to other processes soon, together with others that join within a few milliseconds. If the
    /// announced demand lasts longer than until the next call, that call announces it.
    pub(crate) fn announce(&mut self, arrival: Instant) {
        let is_covered = match (self.call_due(), self.latest.expected) {
            (Some(next), Some(expected)) => expected > next + ANNOUNCED_MARGIN,
            _ => false,
        };
        if !is_covered {
            self.call_by(arrival + GATHER);
        }
    }

    /// Requests took over departures of so many units from another share. If below 0, another share took them over.
    pub(crate) fn took_over(&mut self, units: i64) {
        self.unsent.moved += units;
    }

    /// Calls now, as capacity may have become available early.
    pub(crate) fn nudge(&mut self, now: Instant) {
        if !self.waiting.is_empty() || !self.unsent.settlements.is_empty() {
            self.reschedule(now);
        }
    }

    /// Calls again after an outage, if requests, corrections or places need it.
    pub(crate) fn end_outage(&mut self, now: Instant) {
        self.nudge(now);
        if self.has_places() {
            self.call_by(now);
        }
    }

    /// Returns true if the store keeps places for this queue, or has to.
    pub(crate) fn has_places(&self) -> bool {
        self.places.stored > 0 || self.places.held > 0
    }

    /// The first turn that other requests may need: any turn if some wait here, or else one with a place.
    fn first_unused(&self) -> Option<Turn> {
        let any = !self.waiting.is_empty();
        if !any && self.counters.place().is_none() {
            return None;
        }
        let mut turns = self.departing.requests.values().map(|it| *it.turn);
        turns.find(|turn| turn.places() > 0 || any && !turn.units.is_zero())
    }

    /// The units in progress, with those of turns.
    fn places_in_use(&self) -> u32 {
        if self.counters.place().is_none() {
            return 0;
        }
        let departing = self.departing.requests.values();
        departing.fold(self.places.held, |units, it| {
            units.saturating_add(it.turn.places())
        })
    }

    /// Returns true if the store has more places for this queue than are in use.
    fn has_spare_places(&self) -> bool {
        self.places_in_use() < self.places.stored
    }

    /// Releases the units of a request in progress that has ended: at once if requests wait here, or else within `gather`.
    pub(crate) fn release_places(&mut self, units: u32, now: Instant, gather: Duration) {
        self.subtract_held(units);
        if self.counters.place().is_some() {
            let gather = match self.waiting.is_empty() {
                true => gather,
                false => Duration::ZERO,
            };
            self.call_by(now + gather);
        }
    }

    /// Counts units as no longer in progress, without a call.
    pub(crate) fn subtract_held(&mut self, units: u32) {
        self.places.held = self.places.held.saturating_sub(units);
    }

    /// The end of the lease; `None` if it has ended since it had been lost so many times.
    pub(crate) fn lease_end(&self, losses: u64, now: Instant) -> Option<Instant> {
        if self.counters.place().is_none() {
            // There is no such limit any more.
            return Some(now + UNLIMITED_LEASE);
        }
        let lease = self.places.lease;
        let lease = lease.filter(|it| now < it.until && self.places.losses == losses)?;
        Some(lease.until)
    }

    pub(crate) fn losses(&self) -> u64 {
        self.places.losses
    }

    /// Drops a lease that has ended. Returns how many units are in progress without it.
    pub(crate) fn expire_lease(&mut self, now: Instant) -> u32 {
        let ended = self.places.lease.take_if(|lease| lease.until <= now);
        if ended.is_none() {
            return 0;
        }
        // The store drops them by itself, but for those of a call that it may execute late.
        if self.places.stored != UNKNOWN {
            self.places.stored = 0;
        }
        self.places.losses += u64::from(self.places.held > 0);
        self.places.held
    }

    /// Begins a call, and returns its contents. Requests of more than the largest cost fail. The fallback store, which
    /// serves the requests in an outage, does not learn what concerns grants of the store.
    pub(crate) fn begin_call(
        &mut self,
        number: u64,
        largest_costs: &Costs,
        outage: Option<&StoreError>,
        arrived: impl Fn(Instant) -> u64,
    ) -> Take {
        let (mut mode, mut demand) = self.describe(&arrived);
        let is_too_costly = |cost: &Costs| cost.is_zero() || !cost.is_within(largest_costs);
        if is_too_costly(&demand.cost) {
            let refusal = outage.map_or(Refusal::TooCostly, |error| Refusal::Store(error.clone()));
            self.fail_where(|request| is_too_costly(&request.cost), &refusal);
            (mode, demand) = self.describe(&arrived);
        }
        self.is_announced |= mode == Mode::Wait && !demand.is_empty();
        let newest = self.without_turn(mode).last_key_value();
        let newest = newest.map(|(&arrival, _)| arrival);
        let places = self.places_in_use();
        let holding = Holding {
            units: places,
            releases: outage.is_none() && places < self.places.stored,
            is_notified: false,
        };
        let corrections = match outage {
            Some(_) => Corrections::default(),
            None => self.unsent.take_report(),
        };
        self.calls.next = None;
        self.calls.sent = Some(Sent {
            number,
            mode,
            demand: demand.clone(),
            newest,
            corrections: corrections.clone(),
            places,
            is_fallback: outage.is_some(),
        });
        Take {
            mode,
            demand,
            corrections,
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
        let requests = asked.iter();
        let requests = requests.map(|(arrival, request)| (arrival.at, request.cost));
        (mode, Demand::with_arrivals(requests, arrived))
    }

    /// Applies the answer to a call. An answer to any other call than the current one is ignored. Returns the cost of the
    /// first request that was not granted, and its expected departure.
    pub(crate) fn apply_answer(
        &mut self,
        number: u64,
        answer: &Answer,
        now: Instant,
    ) -> Option<(Costs, Instant)> {
        let sent = self.take_sent(number)?;
        let turns = answer.turns.iter();
        let requests: u64 = turns.map(|(_, requests)| u64::from(*requests)).sum();
        let granted = sent.demand.units_of(requests.min(sent.demand.requests()));
        if !sent.is_fallback {
            self.unsent.lost = 0;
            // The lease may have ended before this answer, which renews it. The dispatcher has reported that.
            self.expire_lease(now);
            if sent.places != UNKNOWN {
                self.places.lease = answer.lease;
            }
            let places = self.counters.place();
            let places = places.map_or(0, |unit| granted.as_costs().0[unit]);
            self.places.stored = sent.places.saturating_add(places);
        }
        (self.out, self.conflict) = (None, None);
        if self.latest.reset.is_none() {
            // The bounds hold from now on. Requests that may depart now do so, however late the first answer is.
            let soonest = now + answer.uncertainty;
            for request in self.waiting.values_mut().filter(|it| it.bound.is_some()) {
                request.bound = request.bound.max(Some(soonest));
                self.departing.woken.extend(request.waker.take());
            }
        }
        (self.latest, self.latest_at) = (answer.standing, Some(now));
        self.is_announced = answer.next_call.is_some();
        let unused = self.distribute(&sent, answer, now);
        self.departing.unblock(now);
        let mut refused = 0;
        match sent.mode {
            Mode::Try => {
                // A refused request is the first that could depart.
                self.latest.expected = answer.expected.first().copied();
                let first = self.tries.first_key_value();
                let is_old = first.is_some_and(|(arrival, _)| arrival.at + LONGEST_TRY <= now);
                // If all that the demand describes are granted, the others were not asked for yet.
                if requests < sent.demand.requests() || self.is_paused(now) {
                    self.fail_tries(sent.newest, &Refusal::Limited(self.latest));
                } else if is_old && !unused.is_zero() {
                    self.fail_tries(sent.newest, &Refusal::Store(not_in_time()));
                }
            }
            Mode::Wait | Mode::Peek => {
                self.latest.expected = answer.expected.last().copied();
                refused = self.refuse_bounded(&sent, answer, granted - unused);
                if !self.waiting.is_empty() {
                    self.fail_tries(None, &Refusal::Limited(self.latest));
                }
            }
        }
        self.schedule(&sent, answer, now);
        if refused > 1 && !self.waiting.is_empty() {
            // Requests between two points may fail, too, and those of other processes wait for what was refused. A call that
            // refuses only the last request is not repeated: in an overload, calls would follow each other.
            self.call_by(now + GATHER);
        }
        let (point, cost) = sent.demand.points_from(granted).next()?;
        let expected = *answer.expected.first()?;
        (point.units == granted + cost).then(|| (cost.as_costs(), expected))
    }

    /// Takes the call whose answer is awaited, if it has this number.
    fn take_sent(&mut self, number: u64) -> Option<Sent> {
        self.calls.sent.take_if(|sent| sent.number == number)
    }

    /// Gives turns to the requests in their order, and returns the units of those that no request can use.
    fn distribute(&mut self, sent: &Sent, answer: &Answer, now: Instant) -> Units {
        let mut unused = Units::default();
        let turns = answer.turns.iter();
        let turns = turns.flat_map(|(turn, requests)| repeat_n(turn, *requests as usize));
        for (turn, rank) in turns.zip(0..sent.demand.requests()) {
            let units = sent.demand.units_of(rank + 1) - sent.demand.units_of(rank);
            let turn = Turn {
                units: units.as_costs(),
                ..*turn
            };
            if let Some(turn) = self.assign(sent.mode, turn, now) {
                self.report_unused(&turn);
                unused += units;
            }
        }
        unused
    }

    /// Gives a turn to the first request, if that costs as much. A request whose bound is earlier fails. Returns a turn
    /// that no request can use.
    fn assign(&mut self, mode: Mode, mut turn: Turn, now: Instant) -> Option<Turn> {
        let is_in_units = turn.counters.units == self.counters.units;
        if turn.until < now || self.is_paused(turn.from) || !is_in_units {
            return Some(turn);
        }
        if mode == Mode::Wait {
            turn = self.departing.move_up(turn, now);
        }
        loop {
            let Some(first) = self.without_turn(mode).first_entry() else {
                return Some(turn);
            };
            let (arrival, request) = (*first.key(), first.get());
            if request.bound.is_some_and(|bound| bound < turn.from) {
                self.refuse(arrival, turn.from);
                continue;
            }
            if request.cost != turn.units {
                return Some(turn);
            }
            let (request, turn) = (first.remove(), Box::new(turn));
            self.departing.insert(arrival, Departing { request, turn });
            return None;
        }
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
            settlements.iter().for_each(|it| self.unsent.add(*it));
            self.call_by(at);
        }
        is_recorded
    }

    /// The next call returns a turn that was not used, if its counters are the present ones.
    fn report_unused(&mut self, turn: &Turn) {
        let is_present = turn.counters == self.counters;
        let Some(recorded) = turn.recorded.filter(|_| is_present) else {
            return;
        };
        // The next call says how many places are in use.
        let place = turn.counters.place();
        for (unit, units) in turn.units.each().filter(|(unit, _)| Some(*unit) != place) {
            self.unsent.add(Settlement {
                recorded: recorded.get(),
                unit,
                difference: -i64::from(units),
            });
        }
    }

    /// Fails the requests whose bound is earlier than their expected departure, behind so many units that depart. Returns
    /// how many.
    fn refuse_bounded(&mut self, sent: &Sent, answer: &Answer, used: Units) -> usize {
        if answer.standing.remaining.units != self.counters.units {
            // The estimates are of other units.
            return 0;
        }
        let points = sent.demand.points.iter().rev();
        let units = points.map(|point| point.units.total());
        let estimates = units.zip(answer.expected.iter().copied().rev());
        let estimates: SmallVec<[_; 8]> = estimates.collect();
        let mut units = used.total();
        let mut refused = Vec::new();
        for (&arrival, request) in &self.waiting {
            let cost = Units::from(request.cost).total();
            units += cost;
            let Some(bound) = request.bound.filter(|_| Some(arrival) <= sent.newest) else {
                continue;
            };
            // The last point that is not behind this request: its estimate is never late.
            let ahead = estimates.iter().find(|(point, _)| *point <= units);
            let expected = ahead.map(|(_, expected)| *expected);
            if let Some(expected) = expected.filter(|it| *it > bound + answer.uncertainty) {
                // The requests behind it move up.
                units -= cost;
                refused.push((arrival, expected));
            }
        }
        for (arrival, expected) in &refused {
            self.refuse(*arrival, *expected);
        }
        refused.len()
    }

    /// Fails a request, which could depart then.
    fn refuse(&mut self, arrival: Arrival, expected: Instant) {
        let standing = Standing {
            expected: Some(expected),
            ..self.latest
        };
        self.fail(arrival, Refusal::Limited(standing));
    }

    /// Fails the requests that do not wait, up to this one if it is named.
    fn fail_tries(&mut self, newest: Option<Arrival>, refusal: &Refusal) {
        while let Some((&arrival, _)) = self.tries.first_key_value()
            && newest.is_none_or(|newest| arrival <= newest)
        {
            self.fail(arrival, refusal.clone());
        }
    }

    /// Decides when the next call is due, after an answer.
    fn schedule(&mut self, sent: &Sent, answer: &Answer, now: Instant) {
        let has_to_send = !self.unsent.settlements.is_empty() || self.has_spare_places();
        let only_waits = self.tries.is_empty() && (sent.is_fallback || !has_to_send);
        match answer.next_call {
            Some(next) if only_waits && !self.waiting.is_empty() => self.call_by(next),
            // The queue is not kept for the end of the outage.
            _ if sent.is_fallback && !self.has_to_ask() => self.stop_calling(),
            _ => self.reschedule(now),
        }
        if let Some(lease) = answer.lease.filter(|_| self.has_places()) {
            self.call_by(lease.renew);
        }
    }

    /// Calls now if anything is left to ask or to send. During a pause of this process, it asks later.
    fn reschedule(&mut self, now: Instant) {
        let has_to_send = self.is_announced || !self.unsent.is_empty() || self.has_spare_places();
        if self.has_to_ask()
            && let Some(until) = self.paused_until
        {
            self.call_by(now.max(until.min(now + PAUSE_CHECK)));
        } else if self.has_to_ask() || has_to_send {
            self.call_by(now);
        }
    }

    /// A call has failed. It is repeated, unless the store refuses it. If the store may have executed it, the next call
    /// takes its grants back.
    pub(crate) fn call_failed(&mut self, number: u64, error: &StoreError, now: Instant) {
        let Some(sent) = self.take_sent(number) else {
            return;
        };
        let is_unknown = error.is_outcome_unknown();
        if !(is_unknown || error.is_outage() || error.is_conflict()) {
            self.fail_all(error);
            if self.places.held > 0 {
                self.call_by(now + SLOW_RETRY);
            }
            return;
        }
        if error.is_conflict() {
            // Only requests that wait are asked for again.
            self.fail_tries(None, &Refusal::Store(error.clone()));
        }
        if is_unknown {
            self.unsent.note_lost(sent.number);
            if self.counters.place().is_some() {
                self.places.stored = UNKNOWN;
            }
        } else {
            self.unsent.moved += sent.corrections.moved;
        }
        // Units that it may have returned are not returned again.
        let settlements = sent.corrections.settlements.into_iter();
        let settlements = settlements.filter(|it| !is_unknown || it.difference > 0);
        settlements.for_each(|it| self.unsent.add(it));
        self.calls.next = None;
        // The next call finds out about an outage.
        let mut retry = now;
        if !error.is_outage() {
            if self.conflict.is_none() {
                // Early bounds hold from now on.
                self.wake_all();
            }
            let (since, _) = *self.conflict.get_or_insert_with(|| (now, error.clone()));
            let only_corrects = !self.has_to_ask() && self.places_in_use() == 0;
            if only_corrects && now - since > LONGEST_CONFLICT {
                return self.fail_all(error);
            }
            retry += if only_corrects { SLOW_RETRY } else { RETRY };
        }
        self.reschedule(retry);
        if self.has_places() {
            self.call_by(retry);
        }
    }

    /// Fails all requests without a turn. The store is not called again until another request joins.
    pub(crate) fn fail_all(&mut self, error: &StoreError) {
        self.fail_where(|_| true, &Refusal::Store(error.clone()));
        self.unsent.drop_settlements();
        self.places.stored = 0;
        self.stop_calling();
    }

    /// Schedules no further call. The store drops the demand after a while. Corrections wait for the next call.
    fn stop_calling(&mut self) {
        (self.unsent.lost, self.is_announced) = (0, false);
        (self.calls, self.conflict) = (Calls::default(), None);
    }

    /// The store is out: schedules no call until [`end_outage`](Self::end_outage). Requests without an earlier bound fail after
    /// a while.
    pub(crate) fn begin_outage(&mut self, error: &StoreError, now: Instant) {
        if self.calls.sent.is_some() {
            // Another thread has called since the outage was noticed.
            return;
        }
        self.calls.next = None;
        self.fail_tries(None, &Refusal::Store(error.clone()));
        if self.waiting.is_empty() {
            self.stop_calling();
        }
        if self.out.is_none() {
            self.out = Some((now, error.clone()));
            // They may wait for the store only so long.
            self.wake_all();
        }
    }

    fn wake_all(&mut self) {
        let wakers = self.requests().filter_map(|it| it.waker.take());
        let woken: Vec<_> = wakers.collect();
        self.departing.woken.extend(woken);
    }

    fn fail_where(&mut self, fails: impl Fn(&Request) -> bool, refusal: &Refusal) {
        let all = self.waiting.iter().chain(&self.tries);
        let failing = all.filter(|(_, request)| fails(request));
        let failing: Vec<Arrival> = failing.map(|(&arrival, _)| arrival).collect();
        for arrival in failing {
            self.fail(arrival, refusal.clone());
        }
    }

    fn fail(&mut self, arrival: Arrival, refusal: Refusal) {
        if let Some(request) = self.take_without_turn(arrival) {
            self.departing.woken.extend(request.waker);
            self.failed.insert(arrival, refusal);
        }
    }

    /// The next step of the request that arrived then.
    pub(crate) fn poll(&mut self, arrival: Arrival, now: Instant, waker: &Waker) -> Step {
        let Some(Departing { request, turn }) = self.departing.requests.get_mut(&arrival) else {
            return self.poll_without_turn(arrival, now, waker);
        };
        request.has_missed = false;
        let turn = **turn;
        let is_over = turn.until < now;
        let is_blocked = self.departing.stall.blocks(arrival);
        if !is_over && (is_blocked || now < turn.from) {
            request.waker = Some(waker.clone());
            return Step::Wait((!is_blocked).then_some(turn.from));
        }
        if is_over {
            let is_busy = self.is_busy(arrival, &turn, now);
            self.revoke_missed(now);
            return Step::Missed { turn, is_busy };
        }
        if let Err(turn) = self.departing.depart(arrival, now) {
            // Those before it may take its turn.
            self.revoke_missed(now);
            let is_busy = turn.is_just_over(now);
            return Step::Missed { turn, is_busy };
        }
        self.places.held = self.places.held.saturating_add(turn.places());
        if turn.places() > 0 && self.calls == Calls::default() {
            let lease = self.places.lease;
            self.call_by(lease.map_or(now, |lease| lease.renew));
        }
        Step::Depart(turn, self.latest)
    }

    /// Returns true if tasks are busy, so that a longer guard helps: this request is late by little, or it is the first of those
    /// that are polled, and late for the second time.
    fn is_busy(&mut self, arrival: Arrival, turn: &Turn, now: Instant) -> bool {
        let is_before_waiting = self.waiting.keys().next().is_none_or(|it| arrival < *it);
        let mut departing = self.departing.requests.iter_mut();
        let first = departing.find(|(_, it)| !it.request.has_missed);
        let first = first.filter(|(first, _)| is_before_waiting && **first == arrival);
        let is_late_again =
            first.is_some_and(|(_, it)| std::mem::replace(&mut it.request.was_late, true));
        is_late_again || turn.is_just_over(now)
    }

    fn poll_without_turn(&mut self, arrival: Arrival, now: Instant, waker: &Waker) -> Step {
        let waiting = self.waiting.get_mut(&arrival);
        let Some(request) = waiting.or_else(|| self.tries.get_mut(&arrival)) else {
            let refusal = self.failed.remove(&arrival);
            return Step::Fail(refusal.expect("a request is polled until it ends"));
        };
        request.has_missed = false;
        let out = self.out.as_ref();
        let outage = out.map(|(since, error)| ((*since).max(arrival.at) + OUTAGE_WAIT, error));
        // The first answer says whether an early bound can be kept. A store that does not answer is out after a while.
        let soonest = match (self.latest.reset, out, &self.conflict) {
            (None, None, None) => arrival.at + LONGEST_CALL,
            _ => arrival.at,
        };
        let bound = request.bound.map(|bound| bound.max(soonest));
        let bound = bound.or(outage.map(|(until, _)| until));
        if bound.is_none_or(|bound| now < bound) {
            request.waker = Some(waker.clone());
            return Step::Wait(bound);
        }
        let refusal = match outage {
            Some((_, error)) => Refusal::Store(error.clone()),
            None if self.latest.reset.is_none() => {
                let conflict = self.conflict.as_ref().map(|(_, error)| error.clone());
                Refusal::Store(conflict.unwrap_or_else(not_in_time))
            }
            None => Refusal::Limited(self.latest),
        };
        self.cancel(arrival, now);
        Step::Fail(refusal)
    }

    /// Requests whose turns have passed wait for others. One that was not polled since it lost a turn does not, unless it is
    /// blocked: it would only miss the next one, too.
    fn revoke_missed(&mut self, now: Instant) {
        self.departing.stall.limit.get_or_insert(1);
        let stall = self.departing.stall;
        self.revoke(|arrival, it| stall.is_late(arrival, it, now), now);
        self.return_missed(now);
    }

    /// Returns the other turns that have passed to the store. Their requests get no others until they are polled.
    fn return_missed(&mut self, now: Instant) {
        for turn in self.departing.take_missed(now) {
            self.return_to_store(&turn, now);
        }
    }

    /// Returns the turns of some requests to the store. These requests take the turns of others of the same cost behind them, so
    /// that all keep their order, and the last ones are requeued.
    fn revoke(&mut self, loses: impl Fn(Arrival, &Departing) -> bool, now: Instant) {
        let (mut losers, mut kept) = (SmallVec::<[(Mode, Costs); 1]>::new(), Vec::new());
        for arrival in self.departing.requests.keys().copied().collect::<Vec<_>>() {
            let Some(it) = self.departing.requests.get_mut(&arrival) else {
                continue;
            };
            let (turn, mode) = (*it.turn, it.request.mode);
            let alike = (mode, it.request.cost);
            let is_lost = loses(arrival, it);
            let moves = losers.contains(&alike) && turn.is_useful(now);
            if !is_lost && !moves {
                continue;
            }
            it.request.has_missed |= is_lost;
            self.requeue(arrival);
            if is_lost {
                losers.push(alike);
                self.return_to_store(&turn, now);
            } else {
                kept.push((mode, turn));
            }
        }
        for (mode, turn) in kept {
            self.reassign(mode, turn, now);
        }
        self.departing.unblock(now);
    }

    /// Unblocks requests behind others whose tasks are not polled, and returns turns that were not used to the store. If requests
    /// were blocked until their turns had passed, they are requeued; returns the first of these turns.
    pub(crate) fn check(&mut self, now: Instant) -> Option<Turn> {
        let blocked = self.departing.first_blocked();
        let blocked = blocked.filter(|turn| turn.until < now);
        let unused = self.first_unused().filter(|turn| turn.until < now);
        if blocked.is_some() {
            self.revoke_missed(now);
        } else if unused.is_some() {
            self.return_missed(now);
        }
        self.departing.check(now);
        blocked
    }

    /// Removes a request that is cancelled, or fails at its bound. Its turn is reassigned.
    pub(crate) fn cancel(&mut self, arrival: Arrival, now: Instant) {
        match self.departing.requests.remove(&arrival) {
            Some(it) => self.reassign(Mode::Wait, *it.turn, now),
            None if self.take_without_turn(arrival).is_some() => self.withdraw_demand(now),
            None => drop(self.failed.remove(&arrival)),
        }
    }

    /// The first turn of this cost whose request has not departed.
    pub(crate) fn first_turn(&self, cost: Costs, now: Instant) -> Option<(Arrival, Turn)> {
        let departing = self.departing.requests.iter();
        let turns = departing.map(|(&arrival, it)| (arrival, *it.turn));
        let useful = turns.filter(|(_, turn)| turn.units == cost && turn.is_useful(now));
        useful.min_by_key(|(_, turn)| turn.from)
    }

    /// Takes the first turn of this cost, for a request of a higher level. The requests behind it move up, and the last of them
    /// is requeued.
    pub(crate) fn preempt(&mut self, cost: Costs, now: Instant) -> Option<Turn> {
        let (mut last, _) = self.first_turn(cost, now)?;
        let behind = self.departing.requests.range_mut(last..);
        let alike = behind.filter(|(_, it)| it.turn.units == cost && it.turn.is_useful(now));
        let mut taken: Option<Turn> = None;
        for (arrival, it) in alike.rev() {
            match taken.replace(*it.turn) {
                Some(later) => {
                    *it.turn = later;
                    self.departing.woken.extend(it.request.waker.take());
                }
                None => last = *arrival,
            }
        }
        self.requeue(last);
        self.departing.unblock(now);
        self.call_by(now);
        taken
    }

    /// A request loses its turn, and waits in its former position.
    fn requeue(&mut self, arrival: Arrival) {
        if let Some(Departing { mut request, .. }) = self.departing.requests.remove(&arrival) {
            self.departing.woken.extend(request.waker.take());
            self.without_turn(request.mode).insert(arrival, request);
        }
    }

    /// Gives a turn that was not used to the next request, or returns it to the store.
    pub(crate) fn reassign(&mut self, mode: Mode, turn: Turn, now: Instant) {
        let unused = match turn.is_useful(now) {
            true => self.assign(mode, turn, now),
            false => Some(turn),
        };
        if let Some(turn) = unused {
            self.return_to_store(&turn, now);
        }
        self.departing.unblock(now);
        self.withdraw_demand(now);
    }

    /// Returns a turn that was not used, by a call now.
    fn return_to_store(&mut self, turn: &Turn, now: Instant) {
        self.report_unused(turn);
        self.call_by(now);
    }

    /// If no request waits any more, a call removes the demand from the store, so that other processes do not wait for it. In an
    /// outage, the queue becomes idle by that call.
    fn withdraw_demand(&mut self, now: Instant) {
        if self.waiting.is_empty() && (self.is_announced || self.out.is_some()) {
            self.call_by(now);
        }
    }

    /// Nothing departs until then. Requests that have an earlier turn wait again.
    pub(crate) fn pause(&mut self, until: Instant, now: Instant) {
        self.paused_until = self.paused_until.max(Some(until));
        self.revoke(|_, it| it.turn.from < until, now);
    }

    /// From now on, the store keeps a pause that ends by `ends`. The turns that it has granted before begin by `until`.
    pub(crate) fn shorten_pause(&mut self, ends: Instant, until: Instant) {
        if self.paused_until.is_some_and(|paused| paused <= ends) {
            self.paused_until = self.paused_until.min(Some(until));
        }
    }

    /// Ends the pauses of this process.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.paused_until = None;
        self.nudge(now);
    }

    /// The corrections that were not sent yet.
    pub(crate) fn settlements(&self) -> &[Settlement] {
        &self.unsent.settlements
    }
}

fn not_in_time() -> StoreError {
    StoreError::new("the store has not answered in time")
}

mod departures;
#[cfg(test)]
mod model;
