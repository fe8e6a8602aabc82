//! Every store of this crate keeps the contract, and the contract finds stores that do not.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use redis::aio::ConnectionManager;
use support::redis_server::RedisServer;
use tower_throttle::key::Key;
use tower_throttle::store::{
    Ask, MemoryStore, Outcome, RedisStore, Release, Reply, Reserve, Reserved, Slot, Store,
};
use tower_throttle::test_util::store_contract;
use tower_throttle::{Limiter, Policy};

/// What a machine may need that does many other things; no test waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn a_memory_store_keeps_the_contract_while_time_stands_still() {
    store_contract(async || MemoryStore::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_memory_store_keeps_the_contract_by_the_real_clock() {
    let store = MemoryStore::new();
    store_contract(async || store.clone()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connected_redis_store_keeps_the_contract() {
    let server = RedisServer::start();
    store_contract(async || {
        let store = RedisStore::connect(&server.url())
            .await
            .expect("a connection");
        store.timeout(PATIENCE)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_redis_store_on_a_multiplexed_connection_keeps_the_contract() {
    let server = RedisServer::start();
    let connection = server
        .client()
        .get_multiplexed_async_connection()
        .await
        .expect("a connection");
    let store = RedisStore::from(connection).timeout(PATIENCE);
    store_contract(async || store.clone()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_redis_store_on_a_connection_manager_keeps_the_contract() {
    let server = RedisServer::start();
    let manager = ConnectionManager::new(server.client())
        .await
        .expect("a connection");
    let store = RedisStore::from(manager)
        .prefix("other")
        .expect("a prefix")
        .timeout(PATIENCE);
    store_contract(async || store.clone()).await;
}

/// A store with one fault, and otherwise as good as the one that it wraps.
#[derive(Debug, Clone)]
struct Faulty {
    store: MemoryStore,
    fault: Fault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    ForgetsToRecord,
    HandsOutOneSlotTwice,
    ForgetsAllQuotasButOne,
    ChargesTheRefused,
    RoundsTheWaitUp,
    RoundsTheWaitDown,
    RecordsTooEarly,
    ForgetsTheBuffer,
    IgnoresNotBefore,
    IgnoresMaxWait,
    IgnoresReleases,
    TakesReleasesTwice,
    CutsLongKeys,
    IgnoresTheCaseOfKeys,
    IgnoresTheNameOfPolicies,
    SaysThatAllRemains,
    LetsTimeGoBack,
    SaysThatItIsNotReady,
}

impl Faulty {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn key(&self, key: &Key) -> Key {
        let text = key.as_str();
        match self.fault {
            Fault::CutsLongKeys => text.chars().take(1_000).collect::<String>().into(),
            Fault::IgnoresTheCaseOfKeys => text.to_lowercase().into(),
            _ => key.clone(),
        }
    }

    fn policy(&self, policy: &Policy) -> Arc<Policy> {
        let quotas = match self.fault {
            Fault::ForgetsAllQuotasButOne => &policy.quotas()[..1],
            _ => policy.quotas(),
        };
        let buffer = match self.fault {
            Fault::ForgetsTheBuffer => Duration::ZERO,
            _ => policy.buffer(),
        };
        let mut builder = Limiter::builder().buffer(buffer);
        for quota in quotas {
            builder = builder.quota(*quota);
        }
        if let Some(name) = policy
            .name()
            .filter(|_| !self.has(Fault::IgnoresTheNameOfPolicies))
        {
            builder = builder.name(name);
        }
        builder
            .build()
            .expect("what could be built before")
            .policy()
    }

    fn asks(&self, asks: &[Ask]) -> Vec<Ask> {
        let mut asks = asks.to_vec();
        if self.has(Fault::IgnoresMaxWait) {
            asks.iter_mut().for_each(|ask| ask.max_wait = u64::MAX);
        }
        asks
    }

    /// What the wrapped store answers, and what it should not have done besides.
    fn answer(&self, reserve: &Reserve<'_>) -> Reserved {
        let answer = now(self.store.reserve(reserve));
        let slots: Vec<_> = answer.outcomes().iter().rev().filter_map(slot).collect();
        if self.has(Fault::ForgetsToRecord) {
            now(self
                .store
                .release(&Release::new(reserve.key, reserve.policy, &slots)));
        }
        if self.has(Fault::ChargesTheRefused) && slots.len() < answer.outcomes().len() {
            now(self
                .store
                .reserve(&Reserve::new(reserve.key, reserve.policy)));
        }
        answer
    }

    fn distort(&self, key: &Key, answer: &Reserved) -> Reserved {
        let mut outcomes = answer.outcomes().to_vec();
        for outcome in &mut outcomes {
            match (self.fault, outcome) {
                (Fault::RoundsTheWaitUp, Outcome::Refused { wait }) => *wait += 1,
                (Fault::RoundsTheWaitDown, Outcome::Refused { wait }) => *wait -= 1,
                (Fault::RecordsTooEarly, Outcome::Granted(slot)) => slot.record -= 1,
                _ => {}
            }
        }
        if self.has(Fault::HandsOutOneSlotTwice)
            && let [.., before, last] = &mut outcomes[..]
        {
            *last = before.clone();
        }
        let back = self.has(Fault::LetsTimeGoBack) && key.as_str().starts_with("key-3-");
        let all = self.has(Fault::SaysThatAllRemains);
        let remaining = if all { 5 } else { answer.remaining() };
        Reserved::new(
            answer.now() - u64::from(back),
            outcomes,
            remaining,
            answer.reset(),
        )
    }
}

impl Store for Faulty {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let (key, policy) = (self.key(reserve.key), self.policy(reserve.policy));
        let asks = self.asks(reserve.asks);
        let mut sent = Reserve::new(&key, &policy);
        (sent.guard, sent.least_guard) = (reserve.guard, reserve.least_guard);
        sent.asks = &asks;
        if !self.has(Fault::IgnoresNotBefore) {
            sent.not_before = reserve.not_before;
        }
        let answer = self.distort(&key, &self.answer(&sent));
        match self.fault {
            Fault::SaysThatItIsNotReady => Reply::pending(async { Ok(answer) }),
            _ => Reply::ready(Ok(answer)),
        }
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        let (key, policy) = (self.key(release.key), self.policy(release.policy));
        let release = Release::new(&key, &policy, release.slots);
        if self.has(Fault::TakesReleasesTwice) {
            now(self.store.release(&release));
        }
        match self.fault {
            Fault::IgnoresReleases => Reply::ready(Ok(())),
            _ => self.store.release(&release),
        }
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let (key, policy) = (self.key(reserve.key), self.policy(reserve.policy));
        let mut sent = Reserve::new(&key, &policy);
        (sent.guard, sent.least_guard) = (reserve.guard, reserve.least_guard);
        (sent.asks, sent.not_before) = (reserve.asks, reserve.not_before);
        self.store.peek(&sent)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        self.store.reset(&self.key(key), &self.policy(policy))
    }

    fn is_local(&self) -> bool {
        true
    }
}

fn now<T: Unpin>(reply: Reply<T>) -> T {
    reply
        .now_or_never()
        .expect("a store in memory answers at once")
        .expect("and never fails")
}

fn slot(outcome: &Outcome) -> Option<Slot> {
    match outcome {
        Outcome::Granted(slot) => Some(slot.clone()),
        Outcome::Refused { .. } => None,
    }
}

/// What the contract says of a store with this fault; `None` if it finds nothing.
fn verdict(fault: Fault) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let make = async || Faulty {
        store: MemoryStore::new(),
        fault,
    };
    let test = AssertUnwindSafe(|| runtime.block_on(store_contract(make)));
    let panic = catch_unwind(test).err()?;
    Some(*panic.downcast::<String>().expect("a message"))
}

#[test]
fn the_contract_finds_each_fault_and_names_the_clause() {
    for (fault, clause) in [
        (
            Fault::ForgetsToRecord,
            "a sliding log never exceeds its limit",
        ),
        (
            Fault::HandsOutOneSlotTwice,
            "a sliding log never exceeds its limit",
        ),
        (
            Fault::RecordsTooEarly,
            "a sliding log never exceeds its limit",
        ),
        (
            Fault::ForgetsTheBuffer,
            "a sliding log never exceeds its limit",
        ),
        (Fault::ForgetsAllQuotasButOne, "joint quotas all hold"),
        (
            Fault::ChargesTheRefused,
            "joint quotas are charged all or none",
        ),
        (
            Fault::IgnoresMaxWait,
            "joint quotas are charged all or none",
        ),
        (
            Fault::SaysThatAllRemains,
            "remaining and reset tell what is left",
        ),
        (Fault::SaysThatItIsNotReady, "a local store answers at once"),
        (Fault::RoundsTheWaitUp, "a refusal records nothing"),
        (Fault::RoundsTheWaitDown, "a refusal records nothing"),
        (Fault::IgnoresNotBefore, "no slot lies before not before"),
        (Fault::LetsTimeGoBack, "the time never goes back"),
        (Fault::IgnoresReleases, "the last slots leave no trace"),
        (Fault::TakesReleasesTwice, "the last slots leave no trace"),
        (Fault::CutsLongKeys, "strange keys are keys of their own"),
        (
            Fault::IgnoresTheCaseOfKeys,
            "strange keys are keys of their own",
        ),
        (
            Fault::IgnoresTheNameOfPolicies,
            "other policies do not affect each other",
        ),
    ] {
        let Some(verdict) = verdict(fault) else {
            panic!("{fault:?}: not found");
        };
        let named = format!("the store breaks its contract: {clause}: ");
        assert!(verdict.starts_with(&named), "{fault:?}: {verdict}");
    }
}

#[test]
fn the_contract_finds_nothing_where_there_is_no_fault() {
    assert_eq!(verdict(Fault::None), None);
}
