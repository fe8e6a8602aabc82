//! The state of the model and the claims about it: [`Setup`], [`World`] and [`Claim`].

use std::hash::{Hash, Hasher};
use std::sync::LazyLock;
use std::time::Duration;

use stateright::{Model, Property};
use tokio::time::Instant;

use super::steps::Step;
use crate::algorithm::{Counter, Demand, Known, LEVEL_BITS, Mode, State, Take, Taken};
use crate::queue::departures::Departing;
use crate::queue::{Arrival, CounterSet, LONGEST_CALL, Queue};
use crate::quota::{CONCURRENT, Quota};

/// A tick is half of the horizon: the store's constants are 20 ms, 100 ms and 250 ms.
pub(super) const TICK: Duration = Duration::from_millis(50);
pub(super) const MICROS: u64 = 50_000;
pub(super) const HORIZON: u64 = 2 * MICROS;
pub(super) const GUARD: u64 = MICROS;

/// All requests of live processes have ended by then.
const END: u64 = 40;

pub(super) static START: LazyLock<Instant> = LazyLock::new(Instant::now);
pub(super) const EPOCH: u64 = 1_763_000_000_000_000;

/// How often each may happen.
pub(super) type May = [u8; 10];

/// The indices of [`May`], by their names in [`MISHAPS`].
pub(super) const CANCELLED: usize = 0;
pub(super) const FORFEITED: usize = 1;
/// A tick passes while something is due.
pub(super) const LATE: usize = 2;
/// A call or a reply is lost, or comes late.
pub(super) const LOST: usize = 3;
pub(super) const CRASHED: usize = 4;
pub(super) const STOPPED: usize = 5;
pub(super) const PAUSED: usize = 6;
pub(super) const LOST_STATE: usize = 7;
pub(super) const REFUSED: usize = 8;
/// A process learns that the store is out, and then that it is back.
pub(super) const OUT: usize = 9;

const MISHAPS: &str = "cancelled forfeited late lost crashed stopped paused lost-state refused out";
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Waits,
    /// It waits for at most [`BOUND`].
    Bounded,
    /// It departs at once or not at all.
    Tries,
}

/// In ticks.
pub(super) const BOUND: u32 = 6;
const WINDOW: u64 = 4;

/// How long the store keeps places, in ticks.
pub(super) const LEASE: u64 = 12;

#[derive(Debug, Clone, Default)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    /// Departures in a window.
    pub(super) limit: u8,
    /// The process of each request, and how it asks.
    pub(super) requests: Vec<(usize, Kind)>,
    /// As many requests as the quota allows have just departed.
    pub(super) is_exhausted: bool,
    pub(super) is_strict: bool,
    /// The requests of the second process are of a lower level than those of the first.
    pub(super) has_levels: bool,
    /// The limit is one of requests in progress.
    pub(super) has_places: bool,
    /// Each second request costs two units.
    pub(super) has_costs: bool,
    /// Requests join until then, in ticks.
    pub(super) joined: u64,
    pub(super) may: May,
    /// The planted mistake, if any.
    pub(super) fault: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Claim {
    /// Never more requests depart in a window than the quota allows.
    NeverMore,
    /// A request departs only within a turn that the store has granted to its process, and each turn is used once.
    InTurn,
    /// The first request of a process that waits gets the next turn.
    InOrder,
    /// A process is not granted the next departure while the other, of a higher level, has announced a request and calls in
    /// time.
    InLevels,
    /// A request that waits is woken for its next step, or a call for it is due or in flight.
    NothingIsStuck,
    /// Every request of a live process departs or fails in time.
    EveryRequestEnds,
    /// Once no request waits, the store has charged what departed, and knows of no demand.
    NothingLeaks,
    /// Nothing departs from a process that has paused the key.
    PausesHold,
    /// A process sends at most a few calls in one tick.
    FewCalls,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct World {
    pub(super) tick: u64,
    pub(super) store: State,
    /// The store as it was written last.
    pub(super) value: Vec<u8>,
    /// The time at which the server started.
    pub(super) since: u64,
    pub(super) processes: [Process; 2],
    pub(super) requests: Vec<Request>,
    pub(super) left: May,
    pub(super) departed: Vec<u64>,
    /// Grants of the store that are not used yet, by process.
    pub(super) granted: Vec<(usize, u64)>,
    /// The recorded times of the departures.
    pub(super) used: Vec<u64>,
    /// A settlement was lost, or a late call was executed: some capacity may be charged in vain.
    pub(super) is_leak_excused: bool,
    pub(super) broken: Option<Claim>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) queue: Queue,
    /// The number of its latest call.
    pub(super) number: u64,
    pub(super) calls_in_tick: u8,
    pub(super) calls: Vec<Call>,
    pub(super) replies: Vec<Reply>,
    /// The call that counts as lost from a tick on.
    pub(super) lost: Option<(u64, u64)>,
    pub(super) has_crashed: bool,
    pub(super) stopped_until: u64,
    pub(super) paused_until: u64,
    pub(super) known: Option<Known>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) take: Take,
    /// The tick in which it was sent.
    pub(super) sent: u64,
    pub(super) is_late: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) number: u64,
    pub(super) sent: u64,
    pub(super) taken: Taken,
    pub(super) is_late: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Request {
    New,
    /// It waits in its queue, and is polled if it is awake or its timer has passed.
    Joined {
        arrival: Arrival,
        is_awake: bool,
        timer: Option<Instant>,
    },
    /// It is in progress, and ends by this tick.
    Working(u64),
    Departed,
    Failed,
    Cancelled,
}

impl Process {
    /// Whether a request that sleeps until a time is woken for its turn, or for its bound. Else calls serve it.
    fn wakes(&self, arrival: Arrival, timer: Option<Instant>, is_served: bool) -> bool {
        let (queue, is_in_time) = (&self.queue, |at| timer.is_some_and(|timer| timer <= at));
        if let Some(Departing { turn, .. }) = queue.departing.requests.get(&arrival) {
            return match queue.departing.stall.blocks(arrival) {
                true => queue.departing.stall.check.is_some(),
                false => is_in_time(turn.from),
            };
        }
        let request = queue.waiting.get(&arrival).or(queue.tries.get(&arrival));
        request.is_some_and(|it| match it.bound {
            Some(bound) if queue.latest.reset.is_some() => is_in_time(bound),
            Some(bound) => is_in_time(bound.max(arrival.at + LONGEST_CALL)),
            None => is_served || timer.is_some(),
        })
    }

    /// Whether a call is in flight, or was lost and not given up yet.
    fn is_calling(&self) -> bool {
        self.calls.iter().any(|call| !call.is_late)
            || self.replies.iter().any(|reply| !reply.is_late)
            || self.lost.is_some()
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.tick, self.since, self.is_leak_excused, self.broken).hash(state);
        (&self.value, &self.processes, &self.requests, self.left).hash(state);
        (&self.departed, &self.granted, &self.used).hash(state);
    }
}

impl Hash for Call {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let take = &self.take;
        (take.number, self.is_late, self.sent).hash(state);
        (&take.corrections.settlements, take.holding.units).hash(state);
    }
}

impl Hash for Reply {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.number, self.is_late, self.sent).hash(state);
    }
}

impl Setup {
    /// Reads the requests of both processes, and how often each fault may happen: `waits tries | bounded; lost 2, late`.
    pub(super) fn parse(name: &'static str) -> Self {
        let (requests, options) = name.split_once("; ").unwrap_or((name, ""));
        let mut setup = Self {
            name,
            limit: 1,
            joined: 1,
            ..Self::default()
        };
        for (process, kinds) in requests.split(" | ").enumerate() {
            let kind = |kind| match kind {
                "waits" => Kind::Waits,
                "bounded" => Kind::Bounded,
                _ => Kind::Tries,
            };
            let kinds = kinds.split(' ').map(kind);
            setup.requests.extend(kinds.map(|kind| (process, kind)));
        }
        for option in options.split(", ").filter(|option| !option.is_empty()) {
            let (option, count) = option.split_once(' ').unwrap_or((option, "1"));
            let count = count.parse().expect("a number");
            match option {
                "limit" => setup.limit = count,
                "exhausted" => setup.is_exhausted = true,
                "strict" => setup.is_strict = true,
                "levels" => setup.has_levels = true,
                "places" => setup.has_places = true,
                "costs" => setup.has_costs = true,
                "joined" => setup.joined = count.into(),
                _ => {
                    let index = MISHAPS.split(' ').position(|it| it == option);
                    setup.may[index.expect(name)] = count;
                }
            }
        }
        setup
    }

    /// The number by which the store knows a process.
    pub(super) fn number_of(&self, p: usize) -> u64 {
        let is_lower = p > 0 && self.has_levels && self.fault != "ignores-levels";
        p as u64 + 1 + (u64::from(is_lower) << LEVEL_BITS.start)
    }

    pub(super) fn cost(&self, nth: usize) -> usize {
        1 + nth % 2 * usize::from(self.has_costs)
    }

    pub(super) fn empty_store(&self) -> State {
        let quota = match self.has_places {
            true => Quota::concurrent(self.limit.into()).lease(TICK * LEASE as u32),
            false => Quota::new(self.limit.into(), TICK * WINDOW as u32),
        };
        State::new(&[Counter::new(&quota)])
    }

    pub(super) fn counters(&self) -> CounterSet {
        let units: &[&str] = match self.has_places {
            true => &[CONCURRENT],
            false => &[],
        };
        CounterSet { number: 0, units }
    }
}

impl World {
    pub(super) fn new(setup: &Setup) -> Self {
        let mut this = Self {
            store: setup.empty_store(),
            requests: vec![Request::New; setup.requests.len()],
            left: setup.may,
            ..Self::default()
        };
        for process in &mut this.processes {
            process.queue.counters = setup.counters();
        }
        if setup.is_exhausted {
            let limit = setup.limit.into();
            let take = Take {
                process: u64::MAX,
                demand: Demand::new((0..limit).map(|_| (0, 1))),
                ..take(Mode::Try)
            };
            let taken = this.store.take(0, &take, EPOCH);
            this.departed = vec![0; limit];
            this.used = vec![taken.grants[0].recorded; limit];
        }
        this
    }

    pub(super) fn now(&self) -> Instant {
        *START + TICK * self.tick as u32
    }

    pub(super) fn store_now(&self) -> u64 {
        EPOCH + self.tick * MICROS
    }

    /// Returns true if nothing can happen before the next tick.
    fn is_still(&self, setup: &Setup) -> bool {
        self.broken.is_none() && self.tick < END && self.steps(setup).is_empty()
    }

    /// Sets which claim is broken, if any.
    pub(super) fn check(&mut self, setup: &Setup) {
        let most = setup.requests.len().max(3) + 1;
        let mut processes = self.processes.iter();
        let makes_few_calls = processes.all(|it| usize::from(it.calls_in_tick) <= most);
        let ends = self.tick < END || self.is_quiet(setup);
        let claims = [
            (Claim::NeverMore, self.is_never_more(setup)),
            (Claim::NothingIsStuck, self.is_nothing_stuck(setup)),
            (Claim::EveryRequestEnds, ends),
            (Claim::NothingLeaks, self.leaks_nothing(setup)),
            (Claim::FewCalls, makes_few_calls),
        ];
        let broken = claims.into_iter().find(|(_, holds)| !holds);
        self.broken = self.broken.or(broken.map(|(claim, _)| claim));
    }

    fn is_never_more(&self, setup: &Setup) -> bool {
        if setup.has_places {
            return self.working(setup) <= usize::from(setup.limit);
        }
        let is_near = |&&at: &&u64| at + WINDOW > self.tick;
        self.departed.iter().filter(is_near).count() <= usize::from(setup.limit)
    }

    /// The units of requests in progress.
    fn working(&self, setup: &Setup) -> usize {
        let is_working = |nth: &usize| matches!(self.requests[*nth], Request::Working(_));
        let working = (0..self.requests.len()).filter(is_working);
        working.map(|nth| setup.cost(nth)).sum()
    }

    fn requests_of(&self, setup: &Setup, process: usize) -> impl Iterator<Item = &Request> {
        let requests = self.requests.iter().zip(&setup.requests);
        requests.filter_map(move |(it, (owner, _))| (*owner == process).then_some(it))
    }

    pub(super) fn is_waiting(&self, setup: &Setup, process: usize) -> bool {
        let mut requests = self.requests_of(setup, process);
        requests.any(|request| matches!(request, Request::Joined { .. } | Request::Working(_)))
    }

    fn is_nothing_stuck(&self, setup: &Setup) -> bool {
        self.processes.iter().enumerate().all(|(p, process)| {
            let is_served = process.queue.due().is_some() || process.is_calling();
            let is_woken = |request: &Request| match *request {
                Request::Joined {
                    arrival,
                    is_awake,
                    timer,
                } => is_awake || process.wakes(arrival, timer, is_served),
                _ => true,
            };
            process.has_crashed || self.requests_of(setup, p).all(is_woken)
        })
    }
    fn is_quiet(&self, setup: &Setup) -> bool {
        self.processes.iter().enumerate().all(|(p, process)| {
            let is_idle = process.queue.is_idle() && process.lost.is_none();
            let has_no_call = process.calls.iter().all(|call| call.is_late);
            process.has_crashed || (!self.is_waiting(setup, p) && is_idle && has_no_call)
        })
    }

    /// Whether a process without requests has a call due or in flight, if the store has its demand.
    fn is_demand_withdrawn(&self, setup: &Setup) -> bool {
        self.processes.iter().enumerate().all(|(p, process)| {
            let is_of = |process: u64| process == setup.number_of(p);
            let mut announced = self.store.announced.iter();
            let is_announced = announced.any(|it| is_of(it.process) && !it.demand.is_empty());
            let due = process.queue.due();
            let is_due = due.is_some_and(|due| due <= self.now());
            let is_calling = process.has_crashed || process.is_calling();
            !is_announced || is_due || is_calling || self.is_waiting(setup, p)
        })
    }

    fn leaks_nothing(&self, setup: &Setup) -> bool {
        if self.is_leak_excused || !self.is_demand_withdrawn(setup) {
            return self.is_leak_excused;
        }
        let is_crash = self.processes.iter().any(|process| process.has_crashed);
        if is_crash || !self.is_quiet(setup) {
            return true;
        }
        let now = self.store_now();
        let counts = |&&recorded: &&u64| recorded + WINDOW * MICROS > now;
        let used = match setup.has_places {
            true => self.working(setup),
            false => self.used.iter().filter(counts).count(),
        };
        let has_no_demand = self.store.announced.iter().all(|it| it.demand.is_empty());
        let remaining = self.store.clone().take(0, &take(Mode::Peek), now).remaining;
        let generation = self.store.generation.as_ref();
        let is_quarantined = generation.is_some_and(|it| it.quarantined_until > now);
        let is_closed = is_quarantined || self.store.paused_until() > now;
        has_no_demand && (is_closed || remaining.0[0] as usize + used == usize::from(setup.limit))
    }
}

pub(super) fn horizon(mode: Mode) -> u64 {
    if mode == Mode::Wait { HORIZON } else { 0 }
}

pub(super) fn take(mode: Mode) -> Take {
    Take {
        guard: GUARD,
        horizon: horizon(mode),
        demand: Demand::default(),
        ..Take::one(mode, 1)
    }
}

impl Model for Setup {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.broken.is_some() || world.tick >= END {
            return;
        }
        let possible = world.steps(self);
        let may_wait = |(is_due, step): &(bool, Step)| {
            !is_due || (matches!(step, Step::Join(_)) && world.tick < self.joined)
        };
        let is_punctual = possible.iter().all(may_wait);
        steps.extend(possible.into_iter().map(|(_, step)| step));
        if is_punctual || world.left[LATE] > 0 {
            steps.push(Step::Tick { is_punctual });
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        next.apply(self, step);
        next.check(self);
        // Where nothing but time can pass, it passes at once.
        while matches!(step, Step::Tick { .. }) && next.is_still(self) {
            next.apply(self, Step::Tick { is_punctual: true });
            next.check(self);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("the claims", |_, world: &World| {
            world.broken.is_none()
        })]
    }
}
