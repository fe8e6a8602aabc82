//! The store under test, and processes that call it: [`Bench`] and [`Process`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::StoreHooks;
use super::judge::Departure;
use tower_throttle::key::Key;
use tower_throttle::store::contents::{Command, Demand, Mode, Operation, Settlement, Take};
use tower_throttle::store::{Answered, Call, Reply, Store, StoreError, Taken};
use tower_throttle::{Limiter, LimiterBuilder, Policy};

pub(super) const MS: u64 = 1_000;
pub(super) const SECOND: u64 = 1_000_000;

/// How much later than granted a request may depart.
pub(super) const GUARD: u64 = 10 * MS;

/// How long an answer takes, according to the calls.
pub(super) const ROUND_TRIP: u64 = MS;

pub(super) struct Bench {
    pub(super) store: Arc<dyn Store>,
    pub(super) hooks: Arc<dyn StoreHooks>,
    clause: &'static str,
    /// The start of all keys of this clause.
    prefix: String,
    serials: AtomicU64,
}

impl Bench {
    pub(super) fn new(
        store: Arc<dyn Store>,
        hooks: Arc<dyn StoreHooks>,
        prefix: String,
        clause: &'static str,
    ) -> Self {
        Self {
            store,
            hooks,
            clause,
            prefix,
            serials: AtomicU64::new(1),
        }
    }

    pub(super) fn fail(&self, why: fmt::Arguments<'_>) -> ! {
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

    /// Sends one batch to a shard, and checks what holds for every answer.
    pub(super) async fn send(&self, calls: Vec<Call>) -> Answered {
        let operations = calls.len();
        self.check(operations, || self.store.call(calls)).await
    }

    /// Reads the clock of the shard that holds a key.
    pub(super) async fn ping(&self, key: &Key) -> Answered {
        self.check(0, || self.store.ping(key)).await
    }

    async fn check(&self, operations: usize, call: impl FnOnce() -> Reply<Answered>) -> Answered {
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

    /// Does one thing, and returns the store's time and the answer.
    pub(super) async fn answer(
        &self,
        key: &Key,
        policy: &Policy,
        operation: &Operation,
    ) -> (u64, Result<Taken, StoreError>) {
        let call = Call::new(key, policy, operation);
        let answered = self.send(vec![call]).await;
        let answer = answered.answers.into_iter().next();
        (answered.now, answer.expect("as many answers as operations"))
    }

    pub(super) async fn call(
        &self,
        key: &Key,
        policy: &Policy,
        operation: &Operation,
    ) -> (u64, Taken) {
        match self.answer(key, policy, operation).await {
            (now, Ok(taken)) => (now, taken),
            (_, Err(error)) => self.fail(format_args!("an operation failed: {error:?}")),
        }
    }

    /// Lets requests of cost 1 depart within a second, at most so many, and returns how many do.
    pub(super) async fn depart(&self, key: &Key, policy: &Policy, count: usize) -> u32 {
        let (_, taken) = self.call(key, policy, &attempt(count, 1)).await;
        granted(&taken)
    }

    pub(super) async fn control(
        &self,
        key: &Key,
        policy: &Policy,
        command: Command,
    ) -> (u64, Taken) {
        let operation = Operation::Control(command);
        self.call(key, policy, &operation).await
    }

    pub(super) async fn settle(&self, key: &Key, policy: &Policy, recorded: u64, difference: i64) {
        self.call(key, policy, &settle(recorded, difference)).await;
    }

    /// Waits until the clock of the key's shard shows this time.
    pub(super) async fn sleep_until(&self, key: &Key, time: u64) {
        loop {
            let now = self.ping(key).await.now;
            if now >= time {
                return;
            }
            sleep(Duration::from_micros(time - now)).await;
        }
    }

    pub(super) fn process<'a>(&'a self, key: &'a Key, policy: &'a Policy) -> Process<'a> {
        Process {
            bench: self,
            key,
            policy,
            id: self.serial(),
            number: 0,
            horizon: 0,
            queue: VecDeque::new(),
            departures: Mutex::default(),
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
        settlements: vec![settlement],
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
pub(super) struct Process<'a> {
    bench: &'a Bench,
    key: &'a Key,
    policy: &'a Policy,
    pub(super) id: u64,
    /// The number of its last call.
    pub(super) number: u64,
    pub(super) horizon: u64,
    /// The arrival and the cost of each request.
    pub(super) queue: VecDeque<(u64, u32)>,
    pub(super) departures: Mutex<Vec<Departure>>,
}

impl Process<'_> {
    pub(super) fn join(&mut self, requests: impl IntoIterator<Item = (u64, u32)>) {
        self.queue.extend(requests);
    }

    /// Its next call.
    pub(super) fn next_take(&mut self, mode: Mode, lost: u64) -> Take {
        self.number += 1;
        Take {
            process: self.id,
            number: self.number,
            lost,
            horizon: self.horizon,
            demand: Demand::new(self.queue.iter().copied()),
            ..take(mode, 0, 1)
        }
    }

    /// Calls the store. Granted requests leave the queue and depart.
    pub(super) async fn take(&mut self, mode: Mode) -> Taken {
        let take = self.next_take(mode, 0);
        let operation = Operation::Take(take);
        let (now, taken) = self.bench.call(self.key, self.policy, &operation).await;
        self.apply(now, &taken);
        taken
    }

    /// Lets the granted requests depart.
    fn apply(&mut self, now: u64, taken: &Taken) {
        let bench = self.bench;
        let buffer = self.policy.buffer().as_micros() as u64;
        let mut last = 0;
        for grant in &taken.grants {
            // The process lets its requests depart until the buffer before `recorded`, so that this is at least what
            // its guard asks for.
            let until = grant.at.max(now + ROUND_TRIP) + GUARD + buffer;
            if grant.at < now.max(last) || grant.at > now + self.horizon {
                bench.fail(format_args!("{grant:?} at {now}, behind {last}"));
            }
            if grant.recorded < grant.at + GUARD + buffer {
                bench.fail(format_args!(
                    "{grant:?} leaves no room for the guard and the buffer"
                ));
            }
            last = grant.at;
            for _ in 0..grant.requests {
                let Some((_, cost)) = self.queue.pop_front() else {
                    bench.fail(format_args!("more requests are granted than wait"));
                };
                self.departures.lock().push(Departure {
                    from: grant.at,
                    until: until.max(grant.recorded),
                    units: cost,
                });
            }
        }
    }
}
