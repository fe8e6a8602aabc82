//! A store that remembers its calls: [`RecordingStore`].

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use crate::algorithm::{Command, Mode, Taken};
use crate::key::Key;
use crate::lock::Mutex;
use crate::store::{Answered, Call, MemoryStore, Operation, Store};
use crate::store::{Reply, StoreError};

/// A remote store that remembers each call and its answer.
///
/// It passes calls on to the store inside and changes nothing. Clones share what is remembered, which grows until it
/// is [taken](Self::take_calls).
///
/// ```
/// use futures_util::future::join_all;
/// use tower_throttle::Quota;
/// use tower_throttle::store::MemoryStore;
/// use tower_throttle::Limiter;
/// use tower_throttle::test_util::{FailingStore, RecordingStore};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RecordingStore::new(FailingStore::new(MemoryStore::new()));
/// let limiter = Limiter::builder().store(store.clone()).quota(Quota::per_second(100)).build()?;
/// limiter.acquire("warm-up").await?;
/// store.take_calls();
///
/// join_all((0..50).map(|_| limiter.acquire("api.example.com"))).await;
/// let calls = store.take_calls();
/// let granted: u32 = calls.iter().map(|call| call.granted()).sum();
/// assert_eq!(granted, 50);
/// assert!(calls.len() <= 2);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct RecordingStore<S = MemoryStore> {
    store: Arc<S>,
    calls: Arc<Mutex<Vec<Recorded>>>,
}

type Recorded = Arc<Mutex<RecordedCall>>;

/// A call of a store: a batch of operations, or a [ping](Store::ping).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecordedCall {
    /// The operations, one for each key as a rule; none if it is a ping.
    pub operations: Vec<RecordedOperation>,
    /// When it was made, by tokio's clock.
    pub sent: Instant,
    /// When its answer arrived, or why it failed; `None` while it is under way, or if its caller dropped it.
    pub answered: Option<Result<Instant, StoreError>>,
}

/// One operation of a [`RecordedCall`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecordedOperation {
    /// The limiter's key.
    pub key: Key,
    /// The policy's name.
    pub policy: Option<String>,
    operation: Operation,
    answer: Option<Result<Taken, StoreError>>,
}

impl RecordedCall {
    fn new(calls: &[Call]) -> Self {
        let operations = calls.iter().map(|call| RecordedOperation {
            key: call.key.clone(),
            policy: call.policy.name().map(str::to_owned),
            operation: call.operation.clone(),
            answer: None,
        });
        Self {
            operations: operations.collect(),
            sent: Instant::now(),
            answered: None,
        }
    }

    fn answer(&mut self, answer: &Result<Answered, StoreError>) {
        if let Ok(answered) = answer {
            for (operation, answer) in self.operations.iter_mut().zip(&answered.answers) {
                operation.answer = Some(answer.clone());
            }
        }
        let at = |_: &Answered| Instant::now();
        self.answered = Some(answer.as_ref().map(at).map_err(StoreError::clone));
    }

    /// Returns true for a [ping](Store::ping).
    #[must_use]
    pub fn is_ping(&self) -> bool {
        self.operations.is_empty()
    }

    /// The units that the requests of all operations together asked for.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.operations.iter().map(RecordedOperation::units).sum()
    }

    /// The number of requests that were granted by all operations together.
    #[must_use]
    pub fn granted(&self) -> u32 {
        self.operations.iter().map(RecordedOperation::granted).sum()
    }

    /// Why the call failed, if it did. An operation may fail on its own, too.
    #[must_use]
    pub fn error(&self) -> Option<&StoreError> {
        self.answered.as_ref()?.as_ref().err()
    }
}

impl RecordedOperation {
    /// The kind of the operation: `take`, `peek`, `settle`, `pause`, `allow`, `resume` or `reset`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.operation {
            Operation::Take(take) if take.mode == Mode::Peek => "peek",
            Operation::Take(take) if take.demand.is_empty() && !take.settlements.is_empty() => {
                "settle"
            }
            Operation::Take(_) => "take",
            Operation::Control(Command::Pause { .. }) => "pause",
            Operation::Control(Command::Allow { .. }) => "allow",
            Operation::Control(Command::Resume) => "resume",
            Operation::Control(Command::Reset) => "reset",
        }
    }

    /// Why the store refused the operation, if it did.
    #[must_use]
    pub fn error(&self) -> Option<&StoreError> {
        self.answer.as_ref()?.as_ref().err()
    }

    /// The units that its requests asked for: their number if each costs 1.
    #[must_use]
    pub fn units(&self) -> u64 {
        match &self.operation {
            Operation::Take(take) => take.demand.units(),
            Operation::Control(_) => 0,
        }
    }

    /// The number of requests that were granted.
    #[must_use]
    pub fn granted(&self) -> u32 {
        match &self.answer {
            Some(Ok(taken)) => taken.grants.iter().map(|grant| grant.requests).sum(),
            _ => 0,
        }
    }
}

impl<S: Store> RecordingStore<S> {
    /// A store that was not called yet.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self {
            store: Arc::new(store),
            calls: Arc::default(),
        }
    }

    /// The calls so far, in the order in which they were made.
    #[must_use]
    pub fn calls(&self) -> Vec<RecordedCall> {
        let calls = self.calls.lock();
        calls.iter().map(|call| call.lock().clone()).collect()
    }

    /// The calls so far, which are then forgotten, also the answers of those that are under way.
    pub fn take_calls(&self) -> Vec<RecordedCall> {
        let calls = std::mem::take(&mut *self.calls.lock());
        calls.iter().map(|call| call.lock().clone()).collect()
    }

    fn record(&self, call: RecordedCall, mut reply: Reply<Answered>) -> Reply<Answered> {
        let call = Arc::new(Mutex::new(call));
        self.calls.lock().push(call.clone());
        if let Some(answer) = reply.take_ready() {
            call.lock().answer(&answer);
            return Reply::ready(answer);
        }
        Reply::pending(async move {
            let answer = reply.await;
            call.lock().answer(&answer);
            answer
        })
    }
}

impl<S: Store> Store for RecordingStore<S> {
    fn call(&self, calls: Vec<Call>) -> Reply<Answered> {
        self.record(RecordedCall::new(&calls), self.store.call(calls))
    }

    fn ping(&self, key: &Key) -> Reply<Answered> {
        self.record(RecordedCall::new(&[]), self.store.ping(key))
    }

    fn batch_size(&self) -> usize {
        self.store.batch_size()
    }

    fn shard(&self, key: &Key) -> u64 {
        self.store.shard(key)
    }

    fn subscribe(&self, subscriber: Box<dyn Fn(&Key) -> bool + Send + Sync>) {
        self.store.subscribe(subscriber);
    }
}

impl<S> Clone for RecordingStore<S> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            calls: self.calls.clone(),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for RecordingStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingStore")
            .field("store", &self.store)
            .field("calls", &self.calls.lock().len())
            .finish_non_exhaustive()
    }
}
