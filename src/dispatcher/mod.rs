//! The task of a limiter that calls the store: [`Dispatcher`].
//!
//! A queue names the time of its next call. The task sends the calls that are due in batches, one for each shard of
//! the store, and applies the answers to the queues. Every runtime on which requests wait has such a task. The first one
//! calls, and the others watch it: if it is late, as its runtime is not polled any more, another one takes its place.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::runtime::{self, Handle as Runtime};
use tokio::sync::Notify;
use tokio::task::{consume_budget, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub use self::outages::Health;

use self::handle::KeyQueue;
use self::known::Denied;
use self::outages::Outages;
pub(crate) use self::{
    handle::{Current, Granted, Handle, Position, Waiting},
    held::Held,
    known::REMEMBERED_DENIALS,
};

use crate::algorithm::{Costs, Demand, LANE_BITS, Mode, Take, Taken};
use crate::clock::{Offset, StoreClock};
use crate::error::StoreError;
use crate::key::Key;
use crate::lock::Mutex;
use crate::policy::Policy;
use crate::queue::{Answer, CounterSet, Lease, NEIGHBOURS, Standing, Turn, Woken};
use crate::store::{Answered, Call, MemoryStore, Nudge, Operation, Reply, Store};
use crate::telemetry::{self, StoreTelemetry};

mod handle;
mod held;
mod known;
mod outages;

/// The first task is late if a call is overdue by so long.
const LATE: Duration = Duration::from_millis(50);

/// How often the first task looks after the calls under way, and so shows that it runs.
const BEAT: Duration = Duration::from_millis(100);

/// How often the other tasks look after the first.
const WATCH: Duration = Duration::from_millis(75);

/// Tasks with nothing to do end after so long.
const IDLE: Duration = Duration::from_secs(1);

/// The least horizon, in microseconds, and what it adds to one and a half round trips.
const HORIZON: u64 = 100_000;
const BEYOND_ROUND_TRIP: u64 = 40_000;

/// A longer wait without a bound may surprise the user.
const LONG_WAIT: Duration = Duration::from_secs(60);

/// A call waits for departing requests, whose callers may ask again, for about so long.
const LONGEST_GATHER: Duration = Duration::from_micros(100);

/// A shard that has not replied for so long is out.
const LONGEST_CALL: Duration = Duration::from_secs(5);

/// Calls the store for all queues of a limiter.
pub(crate) struct Dispatcher {
    store: Arc<dyn Store>,
    /// The store again, if it is the embedded one.
    embedded: Option<MemoryStore>,
    fallback: Fallback,
    /// A random number of this process. Its last bits are free for the lane of a queue.
    process: u64,
    /// The latest number of a call, a flight or a queue.
    numbers: AtomicU64,
    clock: StoreClock,
    outages: Outages,
    /// Leases are renewed at multiples of a part of them since then, so that keys share calls. Places in queues are times
    /// since then.
    started: Instant,
    handles: Mutex<Vec<Weak<Handle>>>,
    schedule: Mutex<Schedule>,
    changed: Notify,
    telemetry: StoreTelemetry,
}

/// Serves requests while the store is out.
struct Fallback {
    store: MemoryStore,
    clock: StoreClock,
}

#[derive(Default)]
struct Schedule {
    /// Queues by the time of their next call.
    due: BTreeMap<(Instant, u64), Arc<KeyQueue>>,
    /// The shards that are out: when each is probed next, and a key that it holds.
    probes: HashMap<u64, (Instant, Key)>,
    /// What is under way, by number.
    flights: HashMap<u64, Flight>,
    /// The runtimes that have a task. That of the first one calls the store.
    tasks: Vec<runtime::Id>,
    /// When the first task has run last and had anything to do.
    beat: Option<Instant>,
    /// The most requests of one key that the latest answer lets depart. Their callers may ask again at once.
    departing: usize,
}

/// Something sent to the store.
enum Flight {
    /// A measurement of the round trip to a shard, for which its queues wait, or a probe of a shard that is out.
    Ping(u64, Key),
    Call(u64, Vec<Sent>),
}

/// A queue's part of a batch.
struct Sent {
    queue: Arc<KeyQueue>,
    policy: Arc<Policy>,
    counters: CounterSet,
    number: u64,
    begun: Instant,
    demand: Demand,
    round_trip: Duration,
    guard: Duration,
    /// It gives back departures, or places.
    gives_back: bool,
    clock_sets: u64,
}

impl Sent {
    /// The cost of the first request that was not granted, and its expected departure on the store's clock.
    fn first_refused(&self, taken: &Taken) -> Option<(Costs, u64)> {
        let demand = &self.demand;
        let granted = demand.units_of(taken.granted());
        let (point, cost) = demand.points_from(granted).next()?;
        let is_next = point.units == granted + cost;
        Some((cost.as_costs(), *taken.expected.first()?)).filter(|_| is_next)
    }

    fn failed(&self, error: &StoreError) {
        self.queue
            .update(|queue, woken| queue.failed(self.number, error, Instant::now(), woken));
    }

    /// An answer in local time. The next call is sent earlier by the round trip, so that it arrives in time.
    fn in_local_time(&self, taken: &Taken, offset: &Offset, now: Instant) -> Answer {
        let guard = self.guard;
        let turns = taken.grants.iter().map(|grant| {
            let from = offset.latest(grant.at);
            let until = offset.earliest(grant.recorded - self.policy.buffer_micros());
            let turn = Turn {
                from,
                until: until.min(from.max(now) + 2 * guard),
                recorded: grant.recorded,
                counters: self.counters,
                units: Costs::default(),
                guard,
            };
            (turn, grant.requests)
        });
        let next_call = (taken.next_call > 0).then(|| {
            let at = offset.earliest(taken.next_call);
            at.checked_sub(self.round_trip).unwrap_or(at)
        });
        Answer {
            turns: turns.collect(),
            expected: taken.expected.iter().map(|&at| offset.latest(at)).collect(),
            uncertainty: offset.uncertainty(),
            next_call,
            lease: None,
            standing: Standing {
                units: self.policy.units(),
                remaining: taken.remaining,
                reset: Some(offset.latest(taken.reset)),
                last: None,
                overtakes: taken.overtakes,
            },
        }
    }
}

/// The next step of a task.
enum Next {
    End,
    /// Another one is the first.
    Watch,
    /// What is due, and when to look again.
    Call(Vec<Arc<KeyQueue>>, Vec<(u64, Key)>, Instant),
}

impl Dispatcher {
    /// `label` names the limiter in events and metrics.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        embedded: Option<MemoryStore>,
        label: Arc<str>,
    ) -> Arc<Self> {
        let random = std::collections::hash_map::RandomState::new();
        let this = Arc::new(Self {
            store,
            embedded,
            fallback: Fallback {
                store: MemoryStore::new(),
                clock: StoreClock::new(),
            },
            // Scripts hold it in a double.
            process: random.hash_one(std::process::id()) >> (11 + LANE_BITS) << LANE_BITS,
            numbers: AtomicU64::new(0),
            clock: StoreClock::new(),
            outages: Outages::default(),
            started: Instant::now(),
            handles: Mutex::default(),
            schedule: Mutex::default(),
            changed: Notify::new(),
            telemetry: StoreTelemetry::new(label),
        });
        let weak = Arc::downgrade(&this);
        let nudge = move |nudge: &Nudge| {
            let this = weak.upgrade();
            this.map(|this| this.nudge(nudge)).is_some()
        };
        this.store.subscribe(this.process, Box::new(nudge));
        let embedded = this.embedded.as_ref().map(|store| (store, &this.clock));
        let fallback = (&this.fallback.store, &this.fallback.clock);
        for (store, clock) in embedded.into_iter().chain([fallback]) {
            if let Some(Ok(answered)) = store.ping(&"".into()).take_ready() {
                this.observe(clock, &answered);
            }
        }
        this
    }

    pub(crate) fn add(&self, handle: &Arc<Handle>) {
        let mut handles = self.handles.lock();
        handles.retain(|handle| handle.strong_count() > 0);
        handles.push(Arc::downgrade(handle));
    }

    pub(crate) fn handles(&self) -> Vec<Arc<Handle>> {
        self.handles
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    fn nudge(&self, nudge: &Nudge) {
        for handle in self.handles() {
            handle.nudge(&nudge.key, nudge.process);
        }
    }

    /// How long the store keeps the places of a call that was sent then. It is renewed a third of it ahead, or earlier.
    fn lease(&self, policy: &Policy, sent: Instant) -> Option<Lease> {
        let lease = policy.lease()?;
        // The clocks of hosts run at slightly different speeds.
        let until = sent + lease - lease / 50;
        let latest = sent + 2 * lease / 3 - self.started;
        let steps = latest.as_nanos() / (lease / 3).as_nanos().max(1);
        let renew = self.started + (lease / 3).saturating_mul(steps as u32);
        Some(Lease { until, renew })
    }

    /// The nanoseconds until this moment, at least 1.
    fn nanos(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_nanos() as u64 + 1
    }

    /// A number that no other batch, flight or queue has.
    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns how many shards are out, and the time and the error of the first.
    pub(crate) fn health(&self) -> Health {
        self.outages.health()
    }

    /// A call for one key has ended that was not sent by the task.
    pub(crate) fn called<T>(
        self: &Arc<Self>,
        operation: telemetry::Operation,
        key: &Key,
        begun: Instant,
        result: &Result<T, StoreError>,
    ) {
        self.telemetry.called(operation, 1, result, begun.elapsed());
        if let Err(error) = result
            && error.is_outage()
        {
            self.out(self.store.shard(key), key, error, false);
        }
    }

    /// The next call of a queue may have changed.
    fn touch(self: &Arc<Self>, queue: &Arc<KeyQueue>) {
        let locked = queue.lock();
        let due = locked.due();
        if let (Some(due), true) = (due, self.embedded.is_some())
            && due <= Instant::now()
        {
            // The embedded store answers at once.
            drop(locked);
            self.call_queues(vec![queue.clone()]);
            return;
        }
        let is_first = {
            // While the queue is locked, as another thread would schedule it by what it sees later.
            let mut schedule = self.schedule.lock();
            schedule.set(queue, due);
            let first = schedule.due.first_key_value();
            first.is_some_and(|(_, first)| Arc::ptr_eq(first, queue))
        };
        drop(locked);
        if due.is_some() {
            self.ensure_task();
        }
        if is_first {
            self.changed.notify_waiters();
        }
    }

    /// Starts a task on this runtime, unless it has one.
    pub(crate) fn ensure_task(self: &Arc<Self>) {
        let Ok(runtime) = Runtime::try_current() else {
            return;
        };
        let id = runtime.id();
        {
            let mut schedule = self.schedule.lock();
            // The first task may be about to call while the schedule is empty.
            let has_ended = schedule.is_idle() && schedule.tasks.is_empty();
            if has_ended || schedule.tasks.contains(&id) {
                return;
            }
            schedule.tasks.push(id);
        }
        let task = Task {
            dispatcher: self.clone(),
            runtime: id,
        };
        // A runtime that shuts down drops the task here: the schedule must not be locked.
        runtime.spawn(task.run());
    }

    /// Decides what the task of this runtime does next.
    fn next(self: &Arc<Self>, runtime: runtime::Id) -> Next {
        let now = Instant::now();
        let mut schedule = self.schedule.lock();
        let is_idle = schedule.is_idle();
        if is_idle && schedule.beat.is_none_or(|beat| beat + IDLE <= now) {
            schedule.tasks.retain(|&task| task != runtime);
            return Next::End;
        }
        // Another one may have taken its place in the meantime.
        if !schedule.tasks.contains(&runtime) {
            schedule.tasks.push(runtime);
        }
        let mut orphans = HashMap::new();
        if schedule.tasks[0] != runtime {
            if !schedule.is_late(now) {
                return Next::Watch;
            }
            schedule.tasks.retain(|&task| task != runtime);
            schedule.tasks.insert(0, runtime);
            orphans = std::mem::take(&mut schedule.flights);
        }
        if !is_idle {
            schedule.beat = Some(now);
        }
        let (queues, probes) = schedule.take_due(now);
        let mut until = schedule.next_due().unwrap_or(now + IDLE);
        if !queues.is_empty() || !probes.is_empty() {
            until = until.min(now + BEAT);
        }
        drop(schedule);
        for flight in orphans.into_values() {
            self.lost(flight);
        }
        Next::Call(queues, probes, until)
    }

    /// Sends the calls of queues that are due.
    fn call_queues(self: &Arc<Self>, queues: Vec<Arc<KeyQueue>>) {
        let now = Instant::now();
        let mut due = Vec::with_capacity(queues.len());
        for queue in queues {
            if self.check(&queue, now) {
                due.push((self.store.shard(&queue.key), queue));
            } else {
                queue.update(|_, _| {});
            }
        }
        due.sort_by_key(|(shard, _)| *shard);
        for queues in due.chunk_by(|one, other| one.0 == other.0) {
            let (shard, first) = &queues[0];
            let is_measured = || queues.iter().all(|(_, it)| it.handle.guard.is_measured());
            if let Some(error) = self.outages.error(*shard) {
                self.call_fallback(queues, &error);
            } else if self.embedded.is_some() || is_measured() {
                for batch in queues.chunks(self.store.batch_size().max(1)) {
                    self.call_shard(batch);
                }
            } else if !self.schedule.lock().is_pinged(*shard) {
                self.ping(*shard, first.key.clone());
            }
        }
    }

    fn ping(self: &Arc<Self>, shard: u64, key: Key) {
        let reply = || self.store.ping(&key);
        self.send(Flight::Ping(shard, key.clone()), reply);
    }

    /// Looks after the requests of a queue that may depart, and whether its next call is due.
    fn check(&self, queue: &KeyQueue, now: Instant) -> bool {
        let mut woken = Woken::new();
        let mut locked = queue.lock();
        let missed = locked.check(now, &mut woken);
        let lost = locked.lose_lease(now);
        let is_due = locked.call_due().is_some_and(|due| due <= now);
        drop(locked);
        if let Some(turn) = missed {
            queue.missed(turn.guard, turn.until, now);
        }
        if lost > 0 {
            let telemetry = &queue.handle.load().telemetry;
            telemetry.lost_places(&queue.key, lost);
        }
        wake(woken);
        is_due
    }

    /// Sends the calls of queues of one shard as a batch.
    fn call_shard(self: &Arc<Self>, queues: &[(u64, Arc<KeyQueue>)]) {
        let mut woken = Woken::new();
        let begun = Instant::now();
        // Calls that share a number may be alike, so that the store answers them together.
        let mut number = self.next_number();
        let mut sent = Vec::with_capacity(queues.len());
        let mut takes = Vec::with_capacity(queues.len());
        for (_, queue) in queues {
            if let Some((one, take)) = self.begin(queue, &mut number, begun, None, &mut woken) {
                sent.push(one);
                takes.push(take);
            }
        }
        wake(woken);
        if !sent.is_empty() {
            let requests = sent.iter().map(|sent| sent.demand.requests()).sum();
            let returned = takes.iter().map(Call::settlements).sum();
            self.telemetry.asked(requests, returned);
            let flight = Flight::Call(queues[0].0, sent);
            self.send(flight, || self.store.call(takes));
        }
    }

    /// Serves queues whose shard is out by the embedded store, or lets them wait.
    fn call_fallback(self: &Arc<Self>, queues: &[(u64, Arc<KeyQueue>)], error: &StoreError) {
        for (_, queue) in queues {
            if queue.handle.current().fallback.is_none() {
                queue.update(|queue, woken| queue.out(error, Instant::now(), woken));
                self.nudge_if_back(queue);
                continue;
            }
            let mut woken = Woken::new();
            let (mut number, begun) = (self.next_number(), Instant::now());
            let begun = self.begin(queue, &mut number, begun, Some(error), &mut woken);
            wake(woken);
            if let Some((sent, take)) = begun
                && let Some(answer) = self.fallback.store.call(vec![take]).take_ready()
            {
                self.apply(None, vec![sent], answer);
            }
            self.nudge_if_back(queue);
        }
    }

    /// Calls for a queue whose outage has ended in the meantime, as nothing else would.
    fn nudge_if_back(&self, queue: &Arc<KeyQueue>) {
        if self.outages.error(self.store.shard(&queue.key)).is_none() {
            queue.update(|queue, _| queue.back(Instant::now()));
        }
    }

    /// Begins the call of a queue, unless none is due any more. In an outage, it goes to the fallback store. The number is
    /// replaced if it may be less than that of an earlier call of the queue.
    fn begin(
        &self,
        queue: &Arc<KeyQueue>,
        number: &mut u64,
        begun: Instant,
        outage: Option<&StoreError>,
        woken: &mut Woken,
    ) -> Option<(Sent, Call)> {
        let handle = &queue.handle;
        let mut locked = queue.lock();
        let (current, guard) = (handle.current(), handle.guard.current_micros());
        current.count(&mut locked, woken);
        let (policy, clock, round_trip) = match outage {
            Some(_) => (current.fallback.clone()?, &self.fallback.clock, 0),
            None => {
                let round_trip = handle.guard.round_trip().as_micros() as u64;
                (current.policy.clone(), &self.clock, round_trip)
            }
        };
        locked.call_due()?;
        if *number != self.numbers.load(Ordering::Relaxed) {
            *number = self.next_number();
        }
        let number = *number;
        let largest = policy.largest_costs();
        let mut asked = locked.begin(number, &largest, outage, clock.arrived(), woken);
        asked.holding.is_notified = self.store.is_subscribed();
        let flow = queue.flow();
        if let Some(check) = locked.due() {
            self.schedule.lock().set(queue, Some(check));
            self.changed.notify_waiters();
        }
        drop(locked);
        let clock_sets = self.clock.sets();
        let mut take = Take {
            process: self.process | queue.lane,
            flow,
            reserves: policy.reserves(),
            // The answer of an embedded store cannot be lost.
            number: match (outage, &self.embedded) {
                (None, None) => number,
                _ => 0,
            },
            round_trip,
            guard,
            horizon: match asked.mode {
                Mode::Wait => horizon(round_trip),
                Mode::Try | Mode::Peek => 0,
            },
            strict: match outage {
                Some(_) => None,
                None => handle.strict(&queue.key, &policy, clock_sets),
            },
            ..asked
        };
        if take.strict.is_some() {
            take.shorten_guard(policy.guard().as_micros() as u64);
        }
        let sent = Sent {
            queue: queue.clone(),
            policy: policy.clone(),
            counters: current.counters,
            number,
            begun,
            demand: take.demand.clone(),
            round_trip: Duration::from_micros(take.round_trip),
            guard: Duration::from_micros(take.guard),
            gives_back: !take.corrections.returned().is_zero() || take.holding.releases,
            clock_sets: clock_sets.count,
        };
        let call = Call {
            key: queue.key.clone(),
            policy,
            operation: Operation::Take(take),
        };
        Some((sent, call))
    }

    /// Calls the store, and awaits the reply in a task of its own.
    fn send(self: &Arc<Self>, flight: Flight, call: impl FnOnce() -> Reply<Answered>) {
        let begun = Instant::now();
        let called = catch_unwind(AssertUnwindSafe(call));
        let Ok(mut reply) = called else {
            return self.finish(flight, begun, Err(panicked()));
        };
        if let Some(answer) = reply.take_ready() {
            return self.finish(flight, begun, answer);
        }
        let number = self.next_number();
        self.schedule.lock().flights.insert(number, flight);
        let landing = Landing {
            dispatcher: self.clone(),
            number,
            begun,
        };
        match Runtime::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                let answer = timeout(LONGEST_CALL, reply).await;
                landing.land(answer.unwrap_or_else(|_| {
                    Err(StoreError::new("the store did not reply in time").outcome_unknown())
                }));
            })),
            Err(_) => drop(landing),
        }
    }

    fn finish(
        self: &Arc<Self>,
        flight: Flight,
        begun: Instant,
        answer: Result<Answered, StoreError>,
    ) {
        let (operation, keys) = match &flight {
            Flight::Ping(..) => (telemetry::Operation::Ping, 0),
            Flight::Call(_, sent) => (telemetry::Operation::Take, sent.len()),
        };
        let took = begun.elapsed();
        self.telemetry.called(operation, keys, &answer, took);
        match flight {
            Flight::Ping(shard, key) => self.pinged(shard, &key, answer),
            Flight::Call(shard, sent) => self.apply(Some(shard), sent, answer),
        }
    }

    /// A shard has answered a ping, or not. Its queues can be called for.
    fn pinged(self: &Arc<Self>, shard: u64, key: &Key, answer: Result<Answered, StoreError>) {
        let (mut was_out, mut refusal) = (false, None);
        match answer {
            Ok(answered) => {
                let uncertainty = self.observe(&self.clock, &answered).uncertainty();
                for handle in self.handles() {
                    handle.measured(answered.received - answered.sent, uncertainty);
                }
                if let Some((lasted, others)) = self.outages.ended(shard) {
                    self.telemetry.back(shard, lasted, others);
                    was_out = true;
                }
            }
            Err(error) if error.is_outage() || self.outages.error(shard).is_some() => {
                self.out(shard, key, &error, true);
            }
            Err(error) => refusal = Some(error),
        }
        Handle::each_queue(self, |queue| {
            // In a cluster, keys may have moved to another shard.
            let other = self.store.shard(&queue.key);
            queue.update(|queue, woken| {
                let waits = was_out && (other == shard || queue.is_out());
                if waits && self.outages.error(other).is_none() {
                    queue.back(Instant::now());
                }
                if let Some(error) = refusal.as_ref().filter(|_| other == shard) {
                    queue.abandon(error, woken);
                }
            });
        });
    }

    /// Something under way was lost with its task.
    fn lost(self: &Arc<Self>, flight: Flight) {
        match flight {
            Flight::Ping(shard, key) if self.outages.error(shard).is_some() => {
                self.probe(shard, key, Instant::now());
            }
            Flight::Ping(..) => Handle::each_queue(self, |queue| self.touch(queue)),
            Flight::Call(_, sent) => {
                let error = StoreError::new("the answer was lost").outcome_unknown();
                for sent in sent {
                    sent.failed(&error);
                }
            }
        }
    }

    /// Applies the answers of a batch to its queues.
    fn apply(
        self: &Arc<Self>,
        shard: Option<u64>,
        sent: Vec<Sent>,
        answer: Result<Answered, StoreError>,
    ) {
        let answered = match answer {
            Ok(answered) => answered,
            Err(error) => {
                sent.iter().for_each(|sent| self.fail(shard, sent, &error));
                return;
            }
        };
        let granted = answered.answers.iter().flatten().map(Taken::granted);
        self.schedule.lock().departing = granted.max().unwrap_or(0) as usize;
        let clock = shard.map_or(&self.fallback.clock, |_| &self.clock);
        let offset = self.observe(clock, &answered);
        let took = answered.received - answered.sent;
        if shard.is_some() && self.embedded.is_none() {
            let is_same =
                |one: &Sent, other: &Sent| Arc::ptr_eq(&one.queue.handle, &other.queue.handle);
            for sent in sent.chunk_by(is_same) {
                let handle = &sent[0].queue.handle;
                handle.measured(took, offset.uncertainty());
            }
        }
        let now = Instant::now();
        let mut answers = answered.answers.into_iter();
        for sent in sent {
            let handle = &sent.queue.handle;
            let left_out = || Err(StoreError::new("the store left out an answer").no_outage());
            let taken = match answers.next().unwrap_or_else(left_out) {
                Ok(taken) => taken,
                Err(error) => {
                    self.fail(shard, &sent, &error);
                    continue;
                }
            };
            let is_stale = handle.is_strict() && sent.clock_sets != self.clock.sets().count;
            if taken.is_outdated || is_stale {
                self.lost(Flight::Call(0, vec![sent]));
                continue;
            }
            let mut answer = sent.in_local_time(&taken, &offset, now);
            answer.lease = self.lease(&sent.policy, sent.begun);
            if shard.is_some() {
                if let Some(lease) = answer.lease {
                    let turns = answer.turns.iter_mut();
                    turns.for_each(|(turn, _)| turn.until = turn.until.min(lease.until));
                    let reclaimed = taken.occupancy.reclaimed;
                    handle.load().telemetry.reclaimed_places(reclaimed);
                }
                handle.remember(&sent.queue.key, &taken, &offset, sent.clock_sets);
                // A place may be released at any time.
                if let Some(denials) = &handle.denials
                    && answer.lease.is_none()
                    && let Some((cost, expected)) = sent.first_refused(&taken)
                {
                    let last = Some(offset.latest(expected));
                    let denied = Denied {
                        cost,
                        rank: sent.queue.rank(),
                        earliest: offset.earliest(expected),
                        standing: Standing {
                            last,
                            ..answer.standing
                        },
                        sent: sent.begun,
                    };
                    denials.note(&sent.queue.key, denied);
                }
            }
            // Nothing that the fallback store has granted is returned to the store.
            if shard.is_none() {
                let turns = answer.turns.iter_mut();
                turns.for_each(|(turn, _)| turn.recorded = 0);
            }
            let first = answer.turns.iter().map(|(turn, _)| turn.until).min();
            if let Some(until) = first.filter(|&until| until < now) {
                // The answer came too late.
                sent.queue.missed(sent.guard, until, now);
            }
            if sent.gives_back {
                handle.nudge_others(&sent.queue);
            } else {
                let next = taken.next.iter();
                next.for_each(|&process| handle.nudge(&sent.queue.key, process));
            }
            let last = sent.queue.update(|queue, woken| {
                queue.answer(sent.number, &answer, now, woken);
                queue.unbounded()
            });
            if let Some(wait) = last.map(|last| last.saturating_duration_since(now))
                && wait > LONG_WAIT
            {
                let telemetry = &handle.load().telemetry;
                telemetry.waits_long(&sent.queue.key, wait);
            }
        }
    }

    fn observe(&self, clock: &StoreClock, answered: &Answered) -> Offset {
        let it = answered;
        let read = clock.observe(it.sent, it.received, it.now, it.server);
        if let Some(ahead) = read.set_by() {
            self.telemetry.clock_set(ahead);
        }
        read.offset
    }

    /// A call has failed.
    fn fail(self: &Arc<Self>, shard: Option<u64>, sent: &Sent, error: &StoreError) {
        if let Some(shard) = shard.filter(|_| error.is_outage()) {
            self.out(shard, &sent.queue.key, error, false);
        }
        sent.failed(error);
    }

    /// A shard, which holds this key, does not answer: it is probed until it does.
    fn out(self: &Arc<Self>, shard: u64, key: &Key, error: &StoreError, is_ping: bool) {
        let Some(begun) = self.outages.failed(shard, error, is_ping) else {
            return;
        };
        if begun.is_new {
            self.telemetry.out(shard, error, begun.others);
        }
        if !self.handles().iter().any(Handle::is_used) {
            // The limiter was dropped, or has no rules that limit. The next failure begins another outage.
            self.outages.ended(shard);
            Handle::each_queue(self, |queue| {
                queue.update(|queue, woken| queue.abandon(error, woken));
            });
            return;
        }
        self.probe(shard, key.clone(), begun.probe);
    }

    /// Probes a shard that is out, by a key that it holds.
    fn probe(self: &Arc<Self>, shard: u64, key: Key, at: Instant) {
        self.schedule.lock().probes.insert(shard, (at, key));
        self.ensure_task();
        self.changed.notify_waiters();
    }
}

/// How far ahead departures are granted to a process with this round trip, in microseconds.
fn horizon(round_trip: u64) -> u64 {
    HORIZON.max(round_trip * 3 / 2 + BEYOND_ROUND_TRIP)
}

fn panicked() -> StoreError {
    StoreError::new("the store panicked").outcome_unknown()
}

fn wake(woken: Woken) {
    woken.into_iter().for_each(std::task::Waker::wake);
}

impl Schedule {
    fn is_idle(&self) -> bool {
        self.due.is_empty() && self.probes.is_empty() && self.flights.is_empty()
    }

    fn is_pinged(&self, shard: u64) -> bool {
        let is_ping = |flight: &Flight| matches!(flight, Flight::Ping(other, _) if *other == shard);
        self.flights.values().any(is_ping)
    }

    /// Returns true if the first task does not run.
    fn is_late(&self, now: Instant) -> bool {
        let due = self.next_due();
        due.is_some_and(|due| self.beat.unwrap_or(due).max(due) + LATE < now)
    }

    /// When the first task has to run.
    fn next_due(&self) -> Option<Instant> {
        let due = self.due.first_key_value().map(|((at, _), _)| *at);
        let probes = self.probes.values().map(|(at, _)| *at);
        let beat = self.beat.filter(|_| !self.flights.is_empty());
        let beat = beat.map(|beat| beat + BEAT);
        due.into_iter().chain(probes).chain(beat).min()
    }

    /// Sets when a queue is due.
    fn set(&mut self, queue: &Arc<KeyQueue>, due: Option<Instant>) {
        let serial = queue.serial;
        if let Some(at) = queue.scheduled(due) {
            self.due.remove(&(at, serial));
        }
        if let Some(at) = due {
            self.due.insert((at, serial), queue.clone());
        }
    }

    fn take_due(&mut self, now: Instant) -> (Vec<Arc<KeyQueue>>, Vec<(u64, Key)>) {
        let mut queues = Vec::new();
        while let Some(entry) = self.due.first_entry()
            && entry.key().0 <= now
        {
            let queue = entry.remove();
            queue.scheduled(None);
            queues.push(queue);
        }
        let probes = self.probes.extract_if(|_, (at, _)| *at <= now);
        let probes = probes.map(|(shard, (_, key))| (shard, key)).collect();
        (queues, probes)
    }
}

/// The task of one runtime.
struct Task {
    dispatcher: Arc<Dispatcher>,
    runtime: runtime::Id,
}

impl Task {
    async fn run(self) {
        let dispatcher = &self.dispatcher;
        let mut alarm = pin!(sleep_until(Instant::now()));
        loop {
            // A runtime that shuts down ends tasks where they yield, and drops each call, which is due again at once.
            consume_budget().await;
            // Before it looks, so that it misses no change.
            let mut changed = pin!(dispatcher.changed.notified());
            match dispatcher.next(self.runtime) {
                Next::End => return,
                Next::Watch => sleep(WATCH).await,
                Next::Call(queues, probes, until) => {
                    dispatcher.call_queues(queues);
                    for (shard, key) in probes {
                        dispatcher.ping(shard, key);
                    }
                    // An early alarm costs less than a new one for each call, which wakes the driver of the runtime.
                    if alarm.is_elapsed() || until < alarm.deadline() {
                        alarm.as_mut().reset(until);
                    }
                    poll_fn(|cx| match changed.as_mut().poll(cx) {
                        Poll::Pending => alarm.as_mut().poll(cx),
                        ready => ready,
                    })
                    .await;
                    // Requests that are about to be polled share the next call, and so do those that depart now, in groups.
                    yield_now().await;
                    let departing = std::mem::take(&mut dispatcher.schedule.lock().departing);
                    let latest = Instant::now() + LONGEST_GATHER;
                    for _ in 0..departing / NEIGHBOURS {
                        if Instant::now() > latest {
                            break;
                        }
                        yield_now().await;
                    }
                }
            }
        }
    }
}

impl Drop for Task {
    /// The runtime shuts down, or the task has ended. Requests on other runtimes start another task.
    fn drop(&mut self) {
        let mut schedule = self.dispatcher.schedule.lock();
        if !schedule.tasks.contains(&self.runtime) {
            return;
        }
        schedule.tasks.retain(|&task| task != self.runtime);
        drop(schedule);
        let mut woken = Woken::new();
        Handle::each_queue(&self.dispatcher, |queue| queue.lock().wake_all(&mut woken));
        wake(woken);
    }
}

/// Something under way, until its task has the reply or is dropped.
struct Landing {
    dispatcher: Arc<Dispatcher>,
    number: u64,
    begun: Instant,
}

impl Landing {
    fn land(self, answer: Result<Answered, StoreError>) {
        let flight = self.dispatcher.schedule.lock().flights.remove(&self.number);
        if let Some(flight) = flight {
            self.dispatcher.finish(flight, self.begun, answer);
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let flight = self.dispatcher.schedule.lock().flights.remove(&self.number);
        match flight {
            Some(flight) if std::thread::panicking() => {
                self.dispatcher.finish(flight, self.begun, Err(panicked()));
            }
            Some(flight) => self.dispatcher.lost(flight),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
