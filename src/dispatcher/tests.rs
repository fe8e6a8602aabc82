//! Requests that wait, on the embedded store and on stores that fail.

use std::future::ready;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::Quota;
use crate::acquire::Acquire;
use crate::algorithm::{Command, Costs, Mode, Take};
use crate::key::Key;
use crate::policy::{Lost, Outage, PolicyParts, Recovery};
use crate::priority::{Priority, Rank};
use crate::queue::{Answer, NEIGHBOURS, Refusal};
use crate::store::{Answered, Call, Operation, Reply};

mod concurrency;
mod failures;
mod load;
mod places;
mod runtimes;
mod scenarios;
mod simulation;

const SECOND: Duration = Duration::from_secs(1);

fn policy(quotas: &str) -> Arc<Policy> {
    PolicyParts::of(quotas).build().unwrap().into()
}

fn embedded(quotas: &str) -> Arc<Handle> {
    process(&Arc::new(MemoryStore::new()), policy(quotas))
}

impl Handle {
    fn wait(self: &Arc<Self>, cost: u32, bound: Option<Instant>) -> Result<Waiting, Refusal> {
        self.ask(Mode::Wait, cost, bound)
    }

    fn ask(
        self: &Arc<Self>,
        mode: Mode,
        cost: u32,
        bound: Option<Instant>,
    ) -> Result<Waiting, Refusal> {
        let rank = Rank::default();
        let position = Position::new(Instant::now(), &rank);
        self.join(mode, &key(), &cost.into(), &rank, position, bound)
    }
}

fn key() -> Key {
    Key::new("key")
}

async fn depart(handle: &Arc<Handle>, cost: u32) -> Result<Instant, Refusal> {
    let waiting = handle.wait(cost, None)?;
    waiting.await.map(|_| Instant::now())
}

fn spawn(handle: &Arc<Handle>, cost: u32) -> JoinHandle<Result<Granted, Refusal>> {
    tokio::spawn(handle.wait(cost, None).unwrap())
}

async fn pass(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

#[track_caller]
fn assert_since(start: Instant, millis: std::ops::Range<u64>) {
    let elapsed = start.elapsed();
    let is_within = millis.contains(&(elapsed.as_millis() as u64));
    assert!(is_within, "{elapsed:?}");
}

fn new_runtime() -> tokio::runtime::Runtime {
    runtime(false)
}

fn runtime(is_paused: bool) -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(is_paused);
    runtime.build().unwrap()
}

fn threads(count: usize) -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(count).enable_all().build().unwrap()
}

/// A store behind a network: each call takes a round trip, and some fail.
#[derive(Debug, Default)]
struct Remote {
    memory: MemoryStore,
    round_trip: Duration,
    /// Calls were sent up to so many milliseconds earlier than it is simulated.
    jitter: u64,
    fault: Mutex<Fault>,
    calls: AtomicU64,
    shard: AtomicU64,
    network: Option<Network>,
}

type Subscriber = Box<dyn Fn(&Nudge) -> bool + Send + Sync>;

/// Carries nudges among processes.
#[derive(Clone, Default)]
struct Network(Arc<Mutex<Vec<Subscriber>>>);

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Network")
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    /// The calls are executed, and their answers are lost.
    Reply,
    /// Nothing reaches the store.
    Out,
    /// The store answers pings alone.
    ReadOnly,
    /// The store answers, but not for this key.
    Refuses,
    /// The slot of the key moves, and the calls may be executed or not.
    Conflicts(bool),
    Silent,
    /// One call blocks its thread for a while.
    Blocks,
    Panics,
    /// The store leaves out the answers.
    Short,
    /// So many of 100 calls fail after 100 ms, half of them after they were executed.
    Loses(u64),
}

/// So many calls in one test are a loop: the store works from then on, so that the test ends.
const LOOP: u64 = 2_000;

impl Remote {
    fn new(round_trip: Duration) -> Arc<Self> {
        Self::on(MemoryStore::new(), round_trip)
    }

    fn on(memory: MemoryStore, round_trip: Duration) -> Arc<Self> {
        Arc::new(Self {
            memory,
            round_trip,
            ..Self::default()
        })
    }

    /// Executes calls, and nudges other processes half a round trip later.
    fn execute(&self, calls: Vec<Call>) -> Answered {
        let answered = self.memory.answer(&calls);
        let (network, half) = (self.network.clone(), self.round_trip / 2);
        let pairs = calls.iter().zip(&answered.answers);
        let nudges = pairs.filter_map(|(call, answer)| Some(call.nudges(answer.as_ref().ok()?)));
        let nudges: Vec<_> = nudges.flatten().collect();
        if let Some(network) = network {
            tokio::spawn(async move {
                tokio::time::sleep(half).await;
                for nudge in nudges {
                    network.0.lock().retain(|it| it(&nudge));
                }
            });
        }
        answered
    }

    fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn reply(&self, answered: impl FnOnce() -> Answered) -> Reply {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        let jitter = Duration::from_millis(calls * 37 % (self.jitter + 1));
        let (sent, half) = (Instant::now() - jitter, self.round_trip / 2);
        let fault = *self.fault.lock();
        let fault = if calls < LOOP { fault } else { Fault::None };
        match fault {
            Fault::Panics => panic!("the store panics, as this test expects"),
            Fault::Blocks => {
                self.set(Fault::None);
                std::thread::sleep(SECOND / 5);
            }
            Fault::Silent => return Box::pin(std::future::pending()),
            Fault::Refuses => {
                let error = StoreError::new("the value is unrecognized").no_outage();
                return Box::pin(ready(Err(error)));
            }
            Fault::Conflicts(is_unknown) => {
                let error = StoreError::new("the slot moves").conflict();
                return Box::pin(ready(Err(match is_unknown {
                    true => error.outcome_unknown(),
                    false => error,
                })));
            }
            Fault::Out => {
                return Box::pin(async move {
                    tokio::time::sleep(2 * half).await;
                    Err(StoreError::new("the store is out"))
                });
            }
            // The calls are spread evenly over all hundredths.
            Fault::Loses(percent) if calls * 37 % 100 < percent => {
                if calls.is_multiple_of(2) {
                    answered();
                }
                return Box::pin(async move {
                    pass(100).await;
                    Err(StoreError::new("no reply").outcome_unknown())
                });
            }
            Fault::None | Fault::ReadOnly | Fault::Reply | Fault::Short | Fault::Loses(_) => {}
        }
        // As if the calls arrived at once, and the answers took the whole round trip.
        let mut answered = answered();
        if fault == Fault::Short {
            answered.answers.clear();
        }
        Box::pin(async move {
            tokio::time::sleep(2 * half).await;
            if fault == Fault::Reply {
                let lost = StoreError::new("the answer was lost").no_outage();
                return Err(lost.outcome_unknown());
            }
            let received = Instant::now();
            Ok(Answered {
                sent,
                received,
                ..answered
            })
        })
    }
}

impl Store for Remote {
    fn call(&self, calls: Vec<Call>) -> Reply {
        if *self.fault.lock() == Fault::ReadOnly {
            return Box::pin(ready(Err(StoreError::new("the store accepts no writes"))));
        }
        self.reply(|| self.execute(calls))
    }

    fn ping(&self, _: &Key) -> Reply {
        self.reply(|| self.memory.answer(&[]))
    }

    fn shard(&self, _: &Key) -> u64 {
        self.shard.load(Ordering::Relaxed)
    }

    fn subscribe(&self, _process: u64, subscriber: Subscriber) {
        if let Some(network) = &self.network {
            network.0.lock().push(subscriber);
        }
    }

    fn is_subscribed(&self) -> bool {
        self.network.is_some()
    }
}

/// A store 2 ms away, and a process with this policy.
fn served(policy: Arc<Policy>) -> (Arc<Remote>, Arc<Handle>) {
    let store = Remote::new(Duration::from_millis(2));
    let handle = process(&store, policy);
    (store, handle)
}

fn process(store: &Arc<impl Store>, policy: Arc<Policy>) -> Arc<Handle> {
    let settings = Settings {
        denials: Some(100),
        ..Settings::default()
    };
    let dispatcher = Dispatcher::new(store.clone(), "".into(), settings);
    Handle::new(&dispatcher, policy)
}

async fn held(memory: &MemoryStore, policy: Arc<Policy>) -> u32 {
    let handle = process(&Remote::on(memory.clone(), Duration::ZERO), policy);
    let snapshot = Acquire::new(handle, key()).peek().await.unwrap();
    snapshot.places().map_or(0, |it| it.held)
}
