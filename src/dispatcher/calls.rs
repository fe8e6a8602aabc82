//! Calls of the store, until their answers arrive: [`Flight`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::time::{Instant, timeout};

use super::Dispatcher;
use super::key_queue::KeyQueue;
use crate::algorithm::{Mode, Take};
use crate::error::StoreError;
use crate::key::Key;
use crate::policy::Policy;
use crate::queue::{CounterSet, LONGEST_CALL};
use crate::store::{Answered, Call, Operation, Reply, Store};

/// The least horizon, in microseconds, and what it adds to one and a half round trips.
const HORIZON: u64 = 100_000;
const BEYOND_ROUND_TRIP: u64 = 40_000;

/// A ping or a batch whose answer is awaited.
pub(super) enum Flight {
    /// A measurement of the round trip to a shard, for which its queues wait, or a probe of a shard that is out.
    Ping(u64, Key),
    Call(u64, Vec<SentCall>),
}

/// A queue's part of a batch.
pub(super) struct SentCall {
    pub(super) queue: Arc<KeyQueue>,
    pub(super) policy: Arc<Policy>,
    pub(super) counters: CounterSet,
    pub(super) number: u64,
    pub(super) begun: Instant,
    pub(super) round_trip: Duration,
    pub(super) guard: Duration,
    /// It returns departures or places.
    pub(super) returns_capacity: bool,
    pub(super) clock_sets: u64,
    pub(super) is_fallback: bool,
}

impl Dispatcher {
    /// Sends the calls of queues that are due.
    pub(super) fn call_queues(self: &Arc<Self>, queues: Vec<Arc<KeyQueue>>) {
        let now = Instant::now();
        let mut due = Vec::with_capacity(queues.len());
        for queue in queues {
            if self.check_queue(&queue, now) {
                due.push((self.store.shard(&queue.key), queue));
            } else {
                queue.apply_changes();
            }
        }
        due.sort_by_key(|(shard, _)| *shard);
        for queues in due.chunk_by(|one, other| one.0 == other.0) {
            let (shard, first) = &queues[0];
            let is_measured = || queues.iter().all(|(_, it)| it.handle.guard.is_measured());
            let outage = self.outage(*shard);
            if outage.is_some() || self.embedded.is_some() || is_measured() {
                for batch in queues.chunks(self.store.batch_size().max(1)) {
                    self.call_shard(batch, outage.as_ref());
                }
            } else if !self.schedule.lock().is_pinged(*shard) {
                self.ping(*shard, first.key.clone());
            }
        }
    }

    pub(super) fn ping(self: &Arc<Self>, shard: u64, key: Key) {
        let flight = Flight::Ping(shard, key.clone());
        self.send(flight, Instant::now(), move |store| store.ping(&key));
    }

    /// Unblocks requests of a queue, and drops its turns and its lease if they have ended. Returns true if a call is due.
    fn check_queue(&self, queue: &KeyQueue, now: Instant) -> bool {
        let mut locked = queue.lock();
        let missed = locked.check(now);
        let lost = locked.expire_lease(now);
        let is_due = locked.call_due().is_some_and(|due| due <= now);
        let woken = locked.take_woken();
        drop(locked);
        if let Some(turn) = missed {
            // If this task is late, too, the process is busy.
            let is_busy = turn.until + turn.guard <= now && turn.is_just_over(now);
            queue.missed(&turn, now, is_busy);
        }
        queue.report_lost(lost);
        woken.into_iter().for_each(Waker::wake);
        is_due
    }

    /// Sends the calls of queues of one shard as a batch. In an outage, the fallback store serves them, or they wait.
    pub(super) fn call_shard(
        self: &Arc<Self>,
        queues: &[(u64, Arc<KeyQueue>)],
        outage: Option<&StoreError>,
    ) {
        let (begun, process) = (Instant::now(), self.process());
        // Calls that share a number may be alike, so that the store answers them together.
        let mut number = self.next_number();
        let mut sent = Vec::with_capacity(queues.len());
        let mut calls = Vec::with_capacity(queues.len());
        let (mut requests, mut returned) = (0, 0);
        for (_, queue) in queues {
            if let Some(error) = outage
                && queue.handle.load().policy.fallback.is_none()
            {
                queue.update(|queue| queue.begin_outage(error, begun));
            } else if let Some((one, take)) = self.begin(queue, process, &mut number, begun, outage)
            {
                requests += take.demand.requests();
                returned += take.corrections.settlements.len() + take.corrections.joined;
                calls.push(Call {
                    key: queue.key.clone(),
                    policy: one.policy.clone(),
                    operation: Operation::Take(take),
                });
                sent.push(one);
            }
        }
        if outage.is_some() {
            if !sent.is_empty() {
                let answered = self.fallback.store.answer(&calls);
                self.apply(None, sent, Ok(answered), Instant::now());
            }
            for (shard, queue) in queues {
                // Nothing else calls for a queue whose outage has ended in the meantime.
                if self.outage(*shard).is_none() {
                    queue.update(|queue| queue.end_outage(Instant::now()));
                }
            }
        } else if !sent.is_empty() {
            self.telemetry.asked(requests, returned);
            let flight = Flight::Call(queues[0].0, sent);
            match &self.embedded {
                Some(store) => self.finish(flight, begun, Ok(store.answer(&calls))),
                None => self.send(flight, begun, |store| store.call(calls)),
            }
        }
    }

    /// Begins the call of a queue, unless none is due any more. In an outage, it goes to the fallback store. The number of the
    /// batch is replaced if others were given out since: an earlier call of the queue may have one.
    fn begin(
        &self,
        queue: &Arc<KeyQueue>,
        process: u64,
        number: &mut u64,
        begun: Instant,
        outage: Option<&StoreError>,
    ) -> Option<(SentCall, Take)> {
        let handle = &queue.handle;
        let mut locked = queue.lock();
        let (current, guard) = (handle.current(), handle.guard.current_micros());
        current.apply_to(&mut locked, begun);
        let (policy, clock, round_trip) = match outage {
            Some(_) => (current.policy.fallback.clone()?, &self.fallback.clock, 0),
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
        let largest = policy.largest_costs;
        let mut asked = locked.begin_call(number, &largest, outage, clock.arrived());
        asked.holding.is_notified = self.store.is_subscribed();
        let flow = queue.flow();
        drop(locked);
        queue.apply_changes();
        let clock_sets = self.clock.sets();
        let mut take = Take {
            process: process | queue.lane,
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
            strict: (outage.is_none() && handle.is_strict())
                .then(|| handle.seen.strict(&queue.key, &policy, clock_sets)),
            ..asked
        };
        if take.strict.is_some() {
            take.shorten_guard(policy.guard().as_micros() as u64);
        }
        let sent = SentCall {
            queue: queue.clone(),
            policy,
            counters: current.counters,
            number,
            begun,
            round_trip: Duration::from_micros(take.round_trip),
            guard: Duration::from_micros(take.guard),
            returns_capacity: !take.corrections.returned().is_zero() || take.holding.releases,
            clock_sets: clock_sets.count,
            is_fallback: outage.is_some(),
        };
        Some((sent, take))
    }

    /// Calls the store in a task of its own, which may panic.
    fn send(
        self: &Arc<Self>,
        flight: Flight,
        begun: Instant,
        call: impl FnOnce(&dyn Store) -> Reply + Send + 'static,
    ) {
        let number = self.next_number();
        self.schedule.lock().flights.insert(number, flight);
        let mut landing = Landing {
            dispatcher: self.clone(),
            number,
            begun,
            answer: None,
        };
        if let Ok(runtime) = Runtime::try_current() {
            runtime.spawn(async move {
                let reply = call(&*landing.dispatcher.store);
                landing.answer = Some(within(LONGEST_CALL, reply).await);
                drop(landing);
            });
        }
    }
}

/// The reply of a store, unless it takes longer.
pub(super) async fn within(longest: Duration, reply: Reply) -> Result<Answered, StoreError> {
    let late = || StoreError::new("the store did not reply in time").outcome_unknown();
    timeout(longest, reply)
        .await
        .unwrap_or_else(|_| Err(late()))
}

/// How far ahead departures are granted to a process with this round trip, in microseconds.
pub(super) fn horizon(round_trip: u64) -> u64 {
    HORIZON.max(round_trip * 3 / 2 + BEYOND_ROUND_TRIP)
}

/// Ends a flight when its task has the reply, or is dropped.
struct Landing {
    dispatcher: Arc<Dispatcher>,
    number: u64,
    begun: Instant,
    answer: Option<Result<Answered, StoreError>>,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let flight = self.dispatcher.schedule.lock().flights.remove(&self.number);
        let panics = || Err(StoreError::new("the store panicked").outcome_unknown());
        let panics = std::thread::panicking().then(panics);
        match (flight, self.answer.take().or(panics)) {
            (Some(flight), Some(answer)) => self.dispatcher.finish(flight, self.begun, answer),
            (Some(flight), None) => self.dispatcher.lost(flight),
            (None, _) => {}
        }
    }
}
