//! A policy and the queues of its keys: [`Handle`].

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use quick_cache::sync::Cache;
use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::task::consume_budget;
use tokio::time::{Instant, sleep_until};

use super::answers::left_out;
use super::calls::within;
use super::key_queue::{Granted, KeyQueue, Lanes, Position, Waiting, lane_of};
use super::known::{ANNOUNCED, Denials, Seen};
use super::{Dispatcher, Place};
use crate::algorithm::{
    Command, Costs, Mode, Settlement, Take, Taken, costs_in, level, share_number,
};
use crate::clock::Offset;
use crate::cost::{Cost, Remaining};
use crate::error::StoreError;
use crate::guard::Guard;
use crate::key::Key;
use crate::lock::{Mutex, Replaceable};
use crate::policy::{Policy, Recovery};
use crate::priority::{COMBINED, Priority, Rank};
use crate::queue::{Arrival, CounterSet, LONGEST_CALL, Queue, Refusal, Standing, Turn};
use crate::snapshot::Snapshot;
use crate::store::{Answered, Call, Operation};
use crate::telemetry::{self, Telemetry};

/// Corrections of a key without waiting requests share a call if they follow within so long.
const GATHER_SETTLEMENTS: Duration = Duration::from_millis(5);

/// With so many queues, as in an outage, corrections of other keys are dropped.
const MOST_SETTLING: usize = 100_000;

/// The current policy of a limiter or of a rule, and the requests that wait under it.
///
/// Another policy replaces a pointer: requests that wait get their turns under it.
pub(crate) struct Handle {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) guard: Guard,
    current: Replaceable<Current>,
    queues: Mutex<HashMap<Key, Lanes>>,
    /// How many keys have queues: read without the lock.
    count: AtomicUsize,
    /// How many queues have another priority than the default.
    pub(super) ranked: AtomicUsize,
    /// The last number that was given to a request.
    last_number: AtomicU64,
    pub(crate) denials: Denials,
    pub(super) seen: Seen,
    /// When a pause, or an allowance of a unit, that an upstream announces was last passed on to the store, and for how long.
    announced: Cache<(Key, Option<&'static str>), (Instant, Duration)>,
}

/// The policy that holds now.
pub(crate) struct Current {
    pub(crate) policy: Arc<Policy>,
    pub(crate) counters: CounterSet,
    pub(crate) telemetry: Telemetry,
}

impl Handle {
    pub(crate) fn new(dispatcher: &Arc<Dispatcher>, policy: Arc<Policy>) -> Arc<Self> {
        let this = Arc::new(Self {
            dispatcher: dispatcher.clone(),
            guard: Guard::new(policy.guard()),
            current: Replaceable::new(Current::new(policy, dispatcher, 0, None)),
            queues: Mutex::default(),
            count: AtomicUsize::new(0),
            ranked: AtomicUsize::new(0),
            last_number: AtomicU64::new(0),
            denials: Denials::new(dispatcher.most_denials),
            seen: Seen::default(),
            announced: Cache::new(ANNOUNCED),
        });
        let mut handles = dispatcher.handles.lock();
        handles.retain(|handle| handle.strong_count() > 0);
        handles.push(Arc::downgrade(&this));
        this
    }

    /// An answer shows how long a round trip takes, and how closely the clock is known.
    pub(super) fn measured(&self, answered: &Answered, offset: &Offset) {
        let took = answered.received - answered.sent;
        self.guard.measured(took, offset.uncertainty());
        self.load().telemetry.guard(self.guard.current());
    }

    /// The current policy, for a moment.
    #[inline]
    pub(crate) fn load(&self) -> Cow<'_, Arc<Current>> {
        self.current.load()
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        self.load().into_owned()
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.load().policy.clone()
    }

    /// Replaces the policy, also for the requests that wait.
    pub(crate) fn set_policy(&self, policy: Arc<Policy>) {
        if policy == self.policy() {
            return;
        }
        self.guard.set_floor(policy.guard());
        {
            let queues = self.queues.lock();
            let before = self.load();
            let counts_like = policy.counts_like(&before.policy);
            let number = before.counters.number + u64::from(!counts_like);
            let current = Current::new(policy, &self.dispatcher, number, Some(&before));
            // The policy may have another label.
            let count = queues.len() as f64;
            current.telemetry.queues(count);
            before.telemetry.queues(-count);
            self.current.store(current);
        }
        self.denials.forget(None);
        for queue in self.queues() {
            queue.update(|queue| {
                let now = Instant::now();
                self.load().apply_to(queue, now);
                queue.nudge(now);
            });
        }
    }

    /// Returns true if a limiter, a request, a permit or a charge holds it.
    pub(super) fn is_used(self: &Arc<Self>) -> bool {
        let queues = self.queues.lock();
        // The caller holds it, and so does each queue.
        let count: usize = queues.values().map(SmallVec::len).sum();
        let has_places = |queue: &Arc<KeyQueue>| queue.lock().has_places();
        Arc::strong_count(self) > count + 1 || queues.values().flatten().any(has_places)
    }

    /// The number of keys for which requests wait or hold a place, or corrections are unsent.
    pub(crate) fn key_count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(super) fn queues(&self) -> Vec<Arc<KeyQueue>> {
        self.queues.lock().values().flatten().cloned().collect()
    }

    /// Departs at once if the embedded store allows it and no request of this key waits; `None` if that has to be
    /// asked by way of the queue.
    #[inline(always)]
    pub(crate) fn depart_at_once(
        &self,
        current: &Current,
        key: &Key,
        cost: Costs,
        position: Position,
        now: Instant,
    ) -> Option<Result<Granted, Standing>> {
        let (store, policy) = (self.dispatcher.embedded.as_ref()?, &current.policy);
        // A queue holds the places of requests in progress.
        if policy.lease().is_some() {
            return None;
        }
        if self.key_count() > 0 && self.queues.lock().contains_key(key) {
            return None;
        }
        let guard = self.guard.current();
        let (at, attempt) = store.try_one(key, policy, cost, guard, now)?;
        let local = |time: u64| now + Duration::from_micros(time.saturating_sub(at));
        let Some(recorded) = attempt.recorded else {
            return Some(Err(Standing {
                remaining: Remaining::new(policy.units, attempt.remaining),
                reset: Some(local(attempt.reset)),
                expected: Some(local(attempt.earliest)),
                overtakes: false,
            }));
        };
        let turn = Turn {
            from: now,
            until: now + guard,
            recorded: NonZeroU64::new(recorded),
            counters: current.counters,
            units: cost,
            guard,
        };
        Some(Ok(Granted {
            turn,
            remaining: Remaining::new(policy.units, attempt.remaining),
            reset: attempt.reset.saturating_sub(at),
            position,
            waited: now - position.arrival.at,
            place: Place::default(),
        }))
    }

    /// A request enters the queue of its key, in the position that it had if it is not new.
    ///
    /// # Errors
    ///
    /// Fails outside of a tokio runtime, and if it is new and would wait with too many others.
    ///
    /// # Panics
    ///
    /// Panics on a runtime without a timer.
    pub(crate) fn join(
        self: &Arc<Self>,
        mode: Mode,
        key: &Key,
        cost: &Cost,
        rank: &Rank,
        mut position: Position,
        bound: Option<Instant>,
    ) -> Result<Waiting, Refusal> {
        need_runtime().map_err(Refusal::Store)?;
        // Without a timer, this panics here, and not again and again in the task of the dispatcher.
        let now = Instant::now();
        drop(sleep_until(now));
        let mut queues = self.queues.lock();
        // The policy does not change while the queues are locked.
        let current = self.current();
        let cost = current.policy.costs_of(cost, None);
        let cost = cost.map_err(|_| Refusal::TooCostly)?;
        let most = current.policy.max_waiting();
        let most = most.filter(|_| mode == Mode::Wait && position.arrival.number == 0);
        if let (Some(most), Some(lanes)) = (most, queues.get(key)) {
            let waiting = lanes.iter().map(|queue| queue.lock().len()).sum();
            if waiting >= most {
                let standings = lanes.iter().filter_map(|queue| queue.lock().standing());
                let standing = standings.max_by_key(|standing| standing.expected);
                return Err(Refusal::Full(waiting, standing));
            }
        }
        let queue = self.queue_of(&mut queues, key, cost, position);
        let mut locked = queue.lock();
        if queue.flow == COMBINED {
            current.telemetry.combined();
        }
        current.apply_to(&mut locked, position.arrival.at);
        (queue.weight).store(rank.flow().weight, Ordering::Relaxed);
        if position.arrival.number == 0 {
            // New requests are in the order in which they join, as the queues are locked.
            let (at, number) = (Instant::now(), self.next_arrival_number());
            position.arrival = Arrival { at, number };
        }
        // Its share may have been combined with others.
        position.flow = queue.flow;
        locked.join(mode, position.arrival, cost, bound);
        let level = rank.priority.level();
        let is_guaranteed = rank.share.is_some() || current.is_reserved(level);
        if level < Priority::Normal.level() || is_guaranteed {
            // Requests that it overtakes may come at any time.
            locked.announce(now);
        }
        drop(locked);
        drop(queues);
        // A place belongs to the queue to which the store has given it.
        if current.policy.lease().is_none() {
            queue.preempt_lower(mode, cost, now);
        }
        queue.apply_changes();
        Ok(Waiting::new(queue, position, current))
    }

    /// The position of a request that had a permit, and waits once more.
    pub(crate) fn former_position(&self, mut position: Position) -> Position {
        if position.arrival.number == 0 {
            position.arrival.number = self.next_arrival_number();
        }
        position
    }

    /// The number of a new arrival: it is behind the others that arrived at the same time.
    fn next_arrival_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The queue of requests like this one.
    fn queue_of(
        self: &Arc<Self>,
        queues: &mut HashMap<Key, Lanes>,
        key: &Key,
        cost: Costs,
        Position {
            arrival,
            priority,
            flow,
        }: Position,
    ) -> Arc<KeyQueue> {
        let lanes = queues.entry_ref(key).or_default();
        let (lane, flow) = lane_of(lanes, cost, priority.level(), flow);
        if let Some(queue) = lanes.iter().find(|queue| queue.lane == lane) {
            return queue.clone();
        }
        let (is_first, current) = (lanes.is_empty(), self.load());
        let queue = KeyQueue::new(self, key, lane, flow);
        current.apply_to(&mut queue.lock(), arrival.at);
        lanes.push(queue.clone());
        (self.ranked).fetch_add(queue.is_ranked().into(), Ordering::Relaxed);
        if is_first {
            self.count.store(queues.len(), Ordering::Release);
            current.telemetry.queues(1.0);
        }
        queue
    }

    /// The queue whose requests may use a departure: that of the highest level, down to its own, in which requests of the same
    /// share and like it wait, or else its own. A level with a reserve keeps its departures. A lower level asks the store, as
    /// requests of other processes and shares may be ahead.
    fn queue_like(
        self: &Arc<Self>,
        queues: &mut HashMap<Key, Lanes>,
        key: &Key,
        cost: Costs,
        position: Position,
    ) -> Arc<KeyQueue> {
        let costs_alike = |lane| lane == cost.lane(level(lane), share_number(lane));
        let mine = position.priority.level();
        let is_reserved = self.load().is_reserved(mine);
        let lanes = queues.get(key).into_iter().flatten();
        let alike = lanes.filter(|it| costs_alike(it.lane) && it.flow == position.flow);
        let highest = if is_reserved { mine } else { 0 };
        let alike = alike.filter(|it| (highest..=mine).contains(&level(it.lane)));
        let waiting = alike.filter(|it| it.lock().len() > 0);
        match waiting.min_by_key(|it| level(it.lane)) {
            Some(queue) => queue.clone(),
            None => self.queue_of(queues, key, cost, position),
        }
    }

    /// Drops the queues of a key that have nothing to do.
    pub(crate) fn drop_idle(&self, key: &Key) {
        let mut queues = self.queues.lock();
        let EntryRef::Occupied(mut entry) = queues.entry_ref(key) else {
            return;
        };
        let lanes = entry.get_mut();
        lanes.retain(|queue| {
            let is_used = !queue.lock().is_idle();
            if !is_used {
                (self.ranked).fetch_sub(queue.is_ranked().into(), Ordering::Relaxed);
            }
            is_used
        });
        if lanes.is_empty() {
            entry.remove();
            self.count.store(queues.len(), Ordering::Release);
            self.load().telemetry.queues(-1.0);
            let is_last = queues.is_empty();
            drop(queues);
            if is_last {
                self.dispatcher.idle.notify_waiters();
            }
        }
    }

    /// Calls for the queue of a key that this process number names, or for all if it is 0, as capacity may have become available
    /// early.
    pub(crate) fn nudge(&self, key: &Key, process: u64) {
        self.denials.forget(Some(key));
        for queue in self.lanes(key) {
            if [0, self.dispatcher.process() | queue.lane].contains(&process) {
                queue.update(|queue| queue.nudge(Instant::now()));
            }
        }
    }

    /// A call for this queue has given places or departures back: they may be for requests of the same key in other queues.
    pub(super) fn nudge_others(&self, queue: &Arc<KeyQueue>) {
        let lanes = self.lanes(&queue.key);
        let others = lanes.iter().filter(|other| !Arc::ptr_eq(other, queue));
        others.for_each(|other| other.update(|queue| queue.nudge(Instant::now())));
    }

    /// A permit was not used: the next request departs by it, or it returns to the store.
    pub(crate) fn forfeit(self: &Arc<Self>, key: &Key, granted: Granted) {
        let (turn, position) = (granted.turn, granted.position);
        self.load().telemetry.forfeited(&turn);
        self.denials.forget(Some(key));
        if let Some(held) = granted.place.0 {
            return held.forfeit(turn);
        }
        let queue = {
            let mut queues = self.queues.lock();
            let queue = self.queue_like(&mut queues, key, turn.units, position);
            queue.lock().reassign(Mode::Wait, turn, Instant::now());
            queue
        };
        queue.apply_changes();
    }

    /// Corrects what a past departure cost, with the next call for requests like it. Returns false if other counters have
    /// recorded it.
    pub(crate) fn settle(
        self: &Arc<Self>,
        key: &Key,
        turn: &Turn,
        position: Position,
        settlements: &[Settlement],
    ) -> bool {
        if settlements.iter().any(|it| it.difference < 0) {
            self.denials.forget(Some(key));
        }
        let (queue, is_recorded) = {
            let mut queues = self.queues.lock();
            if queues.len() >= MOST_SETTLING && !queues.contains_key(key) {
                // It stays charged.
                return true;
            }
            let queue = self.queue_of(&mut queues, key, turn.units, position);
            let at = Instant::now() + self.dispatcher.gather(GATHER_SETTLEMENTS);
            let is_recorded = queue.lock().settle(turn.counters, settlements, at);
            (queue, is_recorded)
        };
        queue.apply_changes();
        if is_recorded {
            let units = turn.counters.units;
            self.load().telemetry.corrected(units, settlements);
        }
        is_recorded
    }

    /// Applies a command to a key, in this process and in the store. It is sent again if the answer was lost.
    pub(crate) async fn control(&self, key: &Key, command: Command) -> Result<(), StoreError> {
        let (current, begun) = (self.current(), Instant::now());
        self.apply_command(key, &command, begun);
        self.denials.forget(Some(key));
        let operation = Operation::Control(command);
        if let Some(policy) = &current.policy.fallback {
            let store = &self.dispatcher.fallback.store;
            store.apply(key, policy, &operation, Instant::now()).1?;
        }
        let call = Call {
            key: key.clone(),
            policy: current.policy.clone(),
            operation,
        };
        let kind = telemetry::Operation::Control;
        let answered = match self.call(kind, call.clone()).await {
            Err(error) if error.is_outcome_unknown() => self.call(kind, call).await,
            answered => answered,
        };
        if matches!(command, Command::Resume | Command::Reset) {
            // A call that was sent before may have arrived first.
            self.nudge(key, 0);
        }
        answered?;
        let (Command::Pause { span, .. } | Command::Allow { units: 0, span, .. }) = command else {
            return Ok(());
        };
        let round_trip = self.guard.round_trip();
        let horizon = super::calls::horizon(round_trip.as_micros() as u64);
        let until = Instant::now() + round_trip + Duration::from_micros(horizon);
        // The span was cut to microseconds.
        let ends = begun + Duration::from_micros(span) + Duration::from_millis(1);
        for queue in self.lanes(key) {
            if !matches!(command, Command::Allow { unit, .. } if !costs_in(queue.lane, unit)) {
                queue.update(|queue| queue.shorten_pause(ends, until));
            }
        }
        Ok(())
    }

    /// Reads the state of a key, as it is after the corrections that were not sent yet. Records nothing.
    pub(crate) async fn peek(
        &self,
        key: &Key,
        cost: Costs,
        rank: &Rank,
    ) -> Result<Snapshot, StoreError> {
        // The embedded store answers at once: a task that looks again and again lets others run now and then.
        consume_budget().await;
        let policy = self.policy();
        let (level, flow) = (rank.priority.level(), rank.flow());
        let (lane, _) = lane_of(&self.lanes(key), cost, level, flow.id);
        let mut take = Take {
            process: self.dispatcher.process() | lane,
            flow,
            reserves: policy.reserves(),
            round_trip: self.guard.round_trip().as_micros() as u64,
            guard: self.guard.current_micros(),
            ..Take::one(Mode::Peek, cost)
        };
        let shard = self.dispatcher.store.shard(key);
        if let Some(policy) = &policy.fallback
            && self.dispatcher.outage(shard).is_some()
        {
            let (store, operation) = (&self.dispatcher.fallback.store, Operation::Take(take));
            let (now, taken) = store.apply(key, policy, &operation, Instant::now());
            return Ok(Snapshot::of(&taken?, policy.units, now));
        }
        for queue in self.lanes(key) {
            let settlements = &mut take.corrections.settlements;
            settlements.extend_from_slice(queue.lock().settlements());
        }
        let (key, units) = (key.clone(), policy.units);
        let call = Call {
            key,
            policy,
            operation: Operation::Take(take),
        };
        let (taken, now) = self.call(telemetry::Operation::Peek, call).await?;
        Ok(Snapshot::of(&taken, units, now))
    }

    /// Calls the store for a key, apart from its queues. Returns the answer, and the time of the store.
    async fn call(
        &self,
        kind: telemetry::Operation,
        call: Call,
    ) -> Result<(Taken, u64), StoreError> {
        let (dispatcher, key, begun) = (&self.dispatcher, call.key.clone(), Instant::now());
        let answered = match self.is_embedded() {
            true => dispatcher.store.call(vec![call]).await,
            false => {
                need_runtime()?;
                // A pause may take the time of two calls.
                within(2 * LONGEST_CALL, dispatcher.store.call(vec![call])).await
            }
        };
        let answer = answered.and_then(|mut answered| {
            let taken = answered.answers.pop().ok_or_else(left_out)??;
            Ok((taken, answered.now))
        });
        (dispatcher.telemetry).called(kind, 1, &answer, begun.elapsed());
        if let Err(error) = &answer
            && error.is_outage()
        {
            dispatcher.out(dispatcher.store.shard(&key), &key, error, false);
        }
        answer
    }

    /// Applies a command to the requests of a key in this process.
    pub(crate) fn apply_command(&self, key: &Key, command: &Command, now: Instant) {
        for queue in self.lanes(key) {
            match command {
                Command::Allow { units: 1.., .. } => {}
                Command::Allow { unit, .. } if !costs_in(queue.lane, *unit) => {}
                Command::Allow { span, .. } | Command::Pause { span, .. } => {
                    let until = now + Duration::from_micros(*span);
                    queue.update(|queue| queue.pause(until, now));
                }
                Command::Resume | Command::Reset => queue.update(|queue| queue.resume(now)),
            }
        }
    }

    /// The queues of a key.
    pub(super) fn lanes(&self, key: &Key) -> Lanes {
        self.queues.lock().get(key).cloned().unwrap_or_default()
    }

    /// Remembers that an upstream announces a pause of a key, or an allowance of a unit. Returns false if it did so at `since` or
    /// later, for as long.
    pub(crate) fn announces(
        &self,
        key: &Key,
        unit: Option<&'static str>,
        time: Duration,
        since: Instant,
    ) -> bool {
        let announced = (key.clone(), unit);
        let last = self.announced.get(&announced);
        let is_new = last.is_none_or(|(at, longest)| at < since || longest < time);
        if is_new {
            self.announced.insert(announced, (Instant::now(), time));
        }
        is_new
    }

    /// How much of a unit was left at the answers for this key since then.
    pub(crate) fn least_remaining(&self, key: &Key, unit: &str, since: Option<Instant>) -> u32 {
        let lanes = self.lanes(key);
        let left = lanes
            .iter()
            .filter_map(|queue| queue.lock().remaining_since(since)?.of(unit));
        left.min().unwrap_or(u32::MAX)
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.load().policy.parts.recovery == Recovery::Strict && !self.is_embedded()
    }

    /// Returns true if the store is embedded, so that it answers at once.
    #[inline]
    pub(crate) fn is_embedded(&self) -> bool {
        self.dispatcher.embedded.is_some()
    }
}

/// Fails outside of a tokio runtime.
pub(super) fn need_runtime() -> Result<(), StoreError> {
    let problem = "to wait or to call the store, a request needs a tokio runtime";
    match Runtime::try_current() {
        Ok(_) => Ok(()),
        Err(_) => Err(StoreError::new(problem).no_outage()),
    }
}

impl Current {
    /// `number` counts the policies so far that have started with new counters.
    fn new(
        policy: Arc<Policy>,
        dispatcher: &Dispatcher,
        number: u64,
        before: Option<&Self>,
    ) -> Self {
        let (units, key_labels) = (policy.units, dispatcher.telemetry.key_labels);
        let before = before.map(|it| &it.telemetry);
        Self {
            telemetry: Telemetry::new(key_labels, &policy, before),
            policy,
            counters: CounterSet { number, units },
        }
    }

    /// Returns true if a part of the capacity is reserved for this level.
    pub(super) fn is_reserved(&self, level: u64) -> bool {
        self.policy.reserves()[level as usize] > 0
    }

    /// Has a queue count by the policy.
    pub(super) fn apply_to(&self, queue: &mut Queue, now: Instant) {
        queue.use_policy(&self.policy, self.counters, now);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("policy", &self.policy().label())
            .finish_non_exhaustive()
    }
}
