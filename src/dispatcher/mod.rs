//! The task of a limiter that calls the store: [`Dispatcher`].
//!
//! A queue names the time of its next call. The task sends the calls that are due in batches, one for each shard of
//! the store, and applies the answers to the queues. Every runtime on which requests wait has such a task. The first one
//! calls, and the others watch it: if it is late, as its runtime is not polled any more, another one calls.

use std::any::Any;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::{outages::Health, place::Place};

use self::key_queue::KeyQueue;
use self::task::Schedule;
pub(crate) use self::{
    handle::{Current, Handle},
    key_queue::{Granted, Position, Waiting},
};

use crate::algorithm::LANE_BITS;
use crate::clock::StoreClock;
use crate::error::StoreError;
use crate::key::Key;
use crate::lock::Mutex;
use crate::policy::Policy;
use crate::queue::{Lease, Queue};
use crate::store::{MemoryStore, Nudge, Store};
use crate::telemetry::StoreTelemetry;

mod answers;
mod calls;
mod handle;
mod key_queue;
mod known;
mod outages;
mod place;
mod task;

/// Calls the store for all queues of a limiter.
pub(crate) struct Dispatcher {
    store: Arc<dyn Store>,
    /// The store again, if it is the embedded one.
    embedded: Option<MemoryStore>,
    fallback: Fallback,
    /// For the number of this process.
    random: RandomState,
    /// The latest number of a call, a flight or a queue.
    numbers: AtomicU64,
    clock: StoreClock,
    /// Leases are renewed at multiples of a part of them since then, so that keys share calls.
    started: Instant,
    handles: Mutex<Vec<Weak<Handle>>>,
    schedule: Mutex<Schedule>,
    changed: Notify,
    /// A policy has no queue any more.
    pub(crate) idle: Notify,
    /// How many denials each policy remembers: 0 with the embedded store, which answers at once.
    most_denials: usize,
    telemetry: StoreTelemetry,
}

/// The settings of a limiter beside its policies.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settings {
    /// How many keys of a policy are remembered to be over their limit, if not [`REMEMBERED_DENIALS`](known::REMEMBERED_DENIALS).
    pub(crate) denials: Option<usize>,
    pub(crate) key_labels: bool,
}

/// Serves requests while the store is out.
struct Fallback {
    store: MemoryStore,
    clock: StoreClock,
}

impl Dispatcher {
    /// `label` names the limiter in events and metrics.
    pub(crate) fn new(store: Arc<dyn Store>, label: Arc<str>, settings: Settings) -> Arc<Self> {
        let any: &dyn Any = &*store;
        let embedded = any.downcast_ref::<MemoryStore>().cloned();
        let is_embedded = embedded.is_some();
        let denials = settings.denials.unwrap_or(known::REMEMBERED_DENIALS);
        let this = Arc::new(Self {
            store,
            embedded,
            fallback: Fallback {
                store: MemoryStore::new(),
                clock: StoreClock::new(),
            },
            random: RandomState::new(),
            numbers: AtomicU64::new(0),
            clock: StoreClock::new(),
            started: Instant::now(),
            handles: Mutex::default(),
            schedule: Mutex::default(),
            changed: Notify::new(),
            idle: Notify::new(),
            most_denials: if is_embedded { 0 } else { denials },
            telemetry: StoreTelemetry::new(label, settings.key_labels),
        });
        let weak = Arc::downgrade(&this);
        let nudge = move |nudge: &Nudge| {
            let this = weak.upgrade();
            let handles = this.iter().flat_map(|this| this.handles());
            handles.for_each(|handle| handle.nudge(&nudge.key, nudge.process));
            this.is_some()
        };
        this.store.subscribe(this.process(), Box::new(nudge));
        let embedded = this.embedded.as_ref().map(|store| (store, &this.clock));
        let fallback = (&this.fallback.store, &this.fallback.clock);
        for (store, clock) in embedded.into_iter().chain([fallback]) {
            this.observe(clock, &store.answer(&[]));
        }
        this
    }

    /// A random number of this process, another one after a fork. Its last bits are free for the lane of a queue.
    fn process(&self) -> u64 {
        // Scripts hold it in a double.
        self.random.hash_one(std::process::id()) >> (11 + LANE_BITS) << LANE_BITS
    }

    pub(crate) fn handles(&self) -> Vec<Arc<Handle>> {
        self.handles
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// The queues of all keys.
    fn queues(&self) -> Vec<Arc<KeyQueue>> {
        self.handles().iter().flat_map(|it| it.queues()).collect()
    }

    /// How long a call waits for others of its key: not at all with the embedded store.
    fn gather(&self, longest: Duration) -> Duration {
        match self.embedded {
            Some(_) => Duration::ZERO,
            None => longest,
        }
    }

    /// The lease of the places of a call that was sent then. It has to be renewed when a third of it is left, or earlier.
    fn lease(&self, policy: &Policy, sent: Instant) -> Option<Lease> {
        let lease = policy.lease()?;
        // The clocks of hosts run at slightly different speeds.
        let until = sent + lease - lease / 50;
        let latest = sent + 2 * lease / 3 - self.started;
        let steps = latest.as_nanos() / (lease / 3).as_nanos().max(1);
        let renew = self.started + (lease / 3).saturating_mul(steps as u32);
        Some(Lease { until, renew })
    }

    /// A number that no other batch, flight or queue has.
    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns how many shards are out, and the time and the error of the first.
    pub(crate) fn health(&self) -> Health {
        self.schedule.lock().outages.health()
    }

    /// Schedules a queue, as its next call may have changed. With the embedded store, a call that is due is made at once.
    fn set_due(self: &Arc<Self>, queue: &Arc<KeyQueue>, locked: MutexGuard<'_, Queue>) {
        let due = locked.due();
        if due == *queue.scheduled.lock() {
            return;
        }
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

    /// A shard, which holds this key, does not answer: it is probed until it does.
    fn out(self: &Arc<Self>, shard: u64, key: &Key, error: &StoreError, is_ping: bool) {
        let failed = (self.schedule.lock().outages).failed(shard, key, error, is_ping);
        let Some((is_new, others)) = failed else {
            return;
        };
        if is_new {
            self.telemetry.out(shard, error, others);
        }
        if !self.handles().iter().any(Handle::is_used) {
            // The limiter was dropped, or has no rules that limit. The next failure begins another outage.
            self.schedule.lock().outages.ended(shard);
            for queue in self.queues() {
                queue.update(|queue| queue.fail_all(error));
            }
            return;
        }
        if is_new {
            // The fallback store decides, serves requests that wait, and counts the work in progress.
            let mut handles = self.handles();
            handles.retain(|it| it.load().policy.fallback.is_some());
            for handle in handles {
                handle.denials.forget(None);
                let queues = handle.queues().into_iter();
                for queue in queues.filter(|it| self.store.shard(&it.key) == shard) {
                    queue.update(|queue| queue.end_outage(Instant::now()));
                }
            }
        }
        self.ensure_task();
        self.changed.notify_waiters();
    }

    /// Why a shard does not answer, if it is out.
    fn outage(&self, shard: u64) -> Option<StoreError> {
        self.schedule.lock().outages.error(shard)
    }
}

#[cfg(test)]
mod tests;
