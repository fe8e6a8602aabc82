//! The store under test, and processes that call it: [`Bench`], [`Entry`] and [`Process`].

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::StoreHooks;
use super::judge::Departure;
use tower_throttle::key::Key;
use tower_throttle::store::contents::{
    Command, Corrections, Demand, Mode, Operation, Settlement, Take,
};
use tower_throttle::store::{Answered, Call, Nudge, Reply, Store, Taken};
use tower_throttle::{Limiter, LimiterBuilder, Policy};

pub(super) const MS: u64 = 1_000;
pub(super) const SECOND: u64 = 1_000_000;

/// How much later than granted a request may depart.
pub(super) const GUARD: u64 = 10 * MS;

/// How long an answer takes, according to the calls.
pub(super) const ROUND_TRIP: u64 = MS;

pub(super) struct Bench {
    pub(super) store: Arc<dyn Store>,
    /// Another instance, which may share the state.
    other: Arc<dyn Store>,
    pub(super) hooks: Arc<dyn StoreHooks>,
    clause: &'static str,
    /// The start of all keys of this clause.
    prefix: String,
    serials: AtomicU64,
}

impl Bench {
    pub(super) fn new(
        [store, other]: [Arc<dyn Store>; 2],
        hooks: Arc<dyn StoreHooks>,
        prefix: String,
        clause: &'static str,
    ) -> Self {
        Self {
            store,
            other,
            hooks,
            clause,
            prefix,
            serials: AtomicU64::new(1),
        }
    }

    pub(super) fn fail(&self, why: impl Display) -> ! {
        let clause = self.clause.replace('_', " ");
        panic!("the store breaks its contract: {clause}: {why}");
    }

    fn serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    /// A key that was never used.
    pub(super) fn key(&self) -> Key {
        Key::new(format!("{}-{}", self.prefix, self.serial()))
    }

    /// A key that was never used, under a policy.
    pub(super) fn entry(self: &Arc<Self>, policy: Policy) -> Entry {
        Entry {
            bench: self.clone(),
            key: self.key(),
            policy,
        }
    }

    /// The keys of the nudges that reach this process, until the list is dropped.
    pub(super) fn nudged_keys(&self, process: u64) -> Arc<Mutex<Vec<Key>>> {
        let keys = Arc::new(Mutex::new(Vec::new()));
        let weak = Arc::downgrade(&keys);
        let subscriber = move |nudge: &Nudge| {
            let keys = weak.upgrade();
            keys.map(|keys| keys.lock().push(nudge.key().clone()))
                .is_some()
        };
        self.store.subscribe(process, Box::new(subscriber));
        keys
    }

    /// Sends one batch to a shard, or more if it is larger than the store allows, and checks what holds for every answer.
    pub(super) async fn send(&self, calls: Vec<Call>) -> Answered {
        let mut batches = calls.chunks(self.store.batch_size().max(1));
        let first = batches.next().unwrap_or_default().to_vec();
        let mut all = self.check(first.len(), || self.store.call(first)).await;
        for batch in batches {
            let batch = batch.to_vec();
            let next = self.check(batch.len(), || self.store.call(batch)).await;
            all.answers.extend(next.answers);
            (all.now, all.received) = (next.now, next.received);
        }
        all
    }

    /// Reads the clock of the shard that holds a key.
    pub(super) async fn ping(&self, key: &Key) -> Answered {
        self.check(0, || self.store.ping(key)).await
    }

    async fn check(&self, operations: usize, call: impl FnOnce() -> Reply) -> Answered {
        let before = Instant::now();
        let answered = match call().await {
            Ok(answered) => answered,
            Err(error) => self.fail(format_args!("a call failed: {error:?}")),
        };
        let times = [before, answered.sent, answered.received, Instant::now()];
        if !times.is_sorted() {
            self.fail(format_args!(
                "sent and received lie outside of the call: {times:?}"
            ));
        }
        if answered.answers.len() != operations {
            let count = answered.answers.len();
            self.fail(format_args!("{count} answers to {operations} operations"));
        }
        answered
    }
}

/// A key under a policy.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) bench: Arc<Bench>,
    pub(super) key: Key,
    pub(super) policy: Policy,
}

impl Entry {
    /// Returns the same policy for another key that was never used.
    pub(super) fn other_key(&self) -> Self {
        let key = self.bench.key();
        Self {
            key,
            ..self.clone()
        }
    }

    /// Returns the same key under another policy.
    pub(super) fn under(&self, policy: Policy) -> Self {
        Self {
            policy,
            ..self.clone()
        }
    }

    /// Returns an entry of the same key, which calls the other instance of the store.
    pub(super) fn by_other_instance(&self) -> Self {
        let it = &self.bench;
        let stores = [it.other.clone(), it.store.clone()];
        let bench = Bench::new(stores, it.hooks.clone(), it.prefix.clone(), it.clause);
        Self {
            bench: Arc::new(bench),
            ..self.clone()
        }
    }

    pub(super) fn fail(&self, why: impl Display) -> ! {
        self.bench
            .fail(format_args!("{why}, {:?}", self.policy.quotas()))
    }

    pub(super) async fn now(&self) -> u64 {
        self.bench.ping(&self.key).await.now
    }

    /// Waits until the clock of the key's shard shows this time.
    pub(super) async fn sleep_until(&self, time: u64) {
        loop {
            let now = self.now().await;
            if now >= time {
                return;
            }
            sleep(Duration::from_micros(time - now)).await;
        }
    }

    /// Does one thing, and returns the store's time and the answer.
    pub(super) async fn call(&self, operation: &Operation) -> (u64, Taken) {
        let call = Call::new(&self.key, &self.policy, operation);
        let answered = self.bench.send(vec![call]).await;
        match answered.answers.into_iter().next() {
            Some(Ok(taken)) => (answered.now, taken),
            other => self.fail(format_args!("an operation failed: {other:?}")),
        }
    }

    /// Lets requests of cost 1 depart within a second, at most so many, and returns how many do.
    pub(super) async fn depart(&self, count: usize) -> u32 {
        granted(&self.call(&attempt(count, 1)).await.1)
    }

    /// Checks that so many of so many requests of cost 1 depart within a second.
    pub(super) async fn departs(&self, asked: usize, expected: u32, when: &str) {
        let count = self.depart(asked).await;
        if count != expected {
            self.fail(format_args!(
                "{count} of {asked} requests depart {when}, not {expected}"
            ));
        }
    }

    pub(super) async fn control(&self, command: Command) -> (u64, Taken) {
        self.call(&Operation::Control(command)).await
    }

    pub(super) async fn settle(&self, recorded: u64, difference: i64) {
        self.call(&settle(recorded, difference)).await;
    }

    /// The value that the store keeps, if a hook reads it.
    pub(super) fn value(&self) -> Option<Vec<u8>> {
        self.bench.hooks.read(&self.key, &self.policy)
    }

    pub(super) fn process(&self) -> Process {
        Process {
            entry: self.clone(),
            id: self.bench.serial(),
            number: 0,
            horizon: 0,
            queue: VecDeque::new(),
            departures: Vec::new(),
        }
    }
}

/// Each algorithm, with a window so long that none ends during a test.
pub(super) const LONG: [&str; 6] = [
    "10/365d",
    "10/365d sliding-buckets buckets=10",
    "10/365d gcra burst=10",
    "10/365d fixed-window",
    "10/365d fixed-window start=first-request",
    "10/365d spacing",
];

/// A policy of quotas such as `10/s + 100/m`.
pub(super) fn policy(quotas: &str) -> Policy {
    policy_with(quotas, |builder| builder)
}

/// A policy of these quotas, with other parts.
pub(super) fn policy_with(
    quotas: &str,
    parts: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
) -> Policy {
    let quotas = quotas
        .split(" + ")
        .map(|quota| quota.parse().expect("a quota"));
    let builder = quotas.fold(Limiter::builder(), LimiterBuilder::quota);
    let limiter = parts(builder).build().expect("a valid policy");
    Policy::clone(&limiter.policy())
}

/// Requests of one cost that depart within a second or not at all.
pub(super) fn attempt(count: usize, cost: u32) -> Operation {
    Operation::Take(Take {
        horizon: SECOND,
        ..take(Mode::Try, count, cost)
    })
}

/// Corrects one departure.
pub(super) fn settle(recorded: u64, difference: i64) -> Operation {
    let settlement = Settlement {
        unit: 0,
        recorded,
        difference,
    };
    Operation::Take(Take {
        corrections: Corrections {
            settlements: vec![settlement],
            ..Corrections::default()
        },
        ..take(Mode::Try, 0, 1)
    })
}

/// A call whose answer cannot be lost.
pub(super) fn take(mode: Mode, count: usize, cost: u32) -> Take {
    Take {
        process: 1,
        mode,
        round_trip: ROUND_TRIP,
        guard: GUARD,
        demand: Demand::new((0..count).map(|_| (1, cost))),
        ..Take::default()
    }
}

pub(super) fn granted(taken: &Taken) -> u32 {
    taken.grants.iter().map(|grant| grant.requests).sum()
}

/// A process whose requests wait for one key.
pub(super) struct Process {
    entry: Entry,
    id: u64,
    /// The number of its last call.
    number: u64,
    pub(super) horizon: u64,
    /// The arrival and the cost of each request.
    pub(super) queue: VecDeque<(u64, u32)>,
    pub(super) departures: Vec<Departure>,
}

impl Process {
    pub(super) fn join(&mut self, requests: impl IntoIterator<Item = (u64, u32)>) {
        self.queue.extend(requests);
    }

    /// The next call, which reports that the answer to the call `lost` was lost.
    pub(super) fn next_take(&mut self, lost: u64) -> Operation {
        self.number += 1;
        Operation::Take(Take {
            process: self.id,
            number: self.number,
            corrections: Corrections {
                lost,
                ..Corrections::default()
            },
            horizon: self.horizon,
            demand: Demand::new(self.queue.iter().copied()),
            ..take(Mode::Wait, 0, 1)
        })
    }

    /// Calls the store. Granted requests leave the queue and depart.
    pub(super) async fn take(&mut self) -> Taken {
        let operation = self.next_take(0);
        let (now, taken) = self.entry.call(&operation).await;
        self.apply(now, &taken);
        taken
    }

    /// Calls the store, and checks how many requests it grants.
    pub(super) async fn takes(&mut self, expected: u32, which: &str) {
        let count = granted(&self.take().await);
        if count != expected {
            let entry = &self.entry;
            entry.fail(format_args!("{count} of {expected} {which} depart"));
        }
    }

    /// Lets the granted requests depart.
    fn apply(&mut self, now: u64, taken: &Taken) {
        let entry = &self.entry;
        let buffer = entry.policy.buffer().as_micros() as u64;
        let mut last = 0;
        for grant in &taken.grants {
            // The process lets its requests depart until the buffer before `recorded`, so that this is at least what
            // its guard asks for.
            let until = grant.at.max(now + ROUND_TRIP) + GUARD + buffer;
            if grant.at < now.max(last) || grant.at > now + self.horizon {
                entry.fail(format_args!("{grant:?} at {now}, behind {last}"));
            }
            if grant.recorded < grant.at + GUARD + buffer {
                entry.fail(format_args!(
                    "{grant:?} leaves no room for the guard and the buffer"
                ));
            }
            last = grant.at;
            for _ in 0..grant.requests {
                let Some((_, cost)) = self.queue.pop_front() else {
                    entry.fail("more requests are granted than wait");
                };
                self.departures.push(Departure {
                    from: grant.at,
                    until: until.max(grant.recorded),
                    units: cost,
                });
            }
        }
    }
}
