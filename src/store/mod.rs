//! Where departures are recorded: [`Store`].
//!
//! A store keeps one value for each key and policy, reads its clock, and applies operations to values atomically.
//! [`Call::apply`] does the rest.

use std::any::Any;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Instant;

use crate::algorithm::{Command, Mode, Origin, State, Take};
use crate::key::Key;
use crate::policy::Policy;

#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use self::manual_clock::ManualClock;
#[cfg(feature = "redis")]
pub use self::redis::RedisStore;
pub use self::{memory::MemoryStore, nudge::Nudge};
pub use crate::algorithm::Taken;
pub use crate::error::StoreError;

/// The contents of calls and answers, for the conformance tests of stores. They may change with any version.
#[doc(hidden)]
pub mod contents {
    pub use super::Operation;
    pub use crate::algorithm::{
        Command, Corrections, Costs, Demand, Flow, Grant, Holding, Known, Mode, Occupancy,
        Reserves, Settlement, Strict, Take,
    };
}

/// The keys that a Redis holds, and their state; see [`RedisStore::keys`].
#[cfg(feature = "redis")]
pub mod inspect {
    pub use super::redis::{KeyState, Keys, QuotaState, StoredKey, WaitingProcess};
}

#[cfg(feature = "test-util")]
mod manual_clock;
mod memory;
mod nudge;
#[cfg(feature = "redis")]
mod redis;

/// Keeps the state of keys for all processes that use it.
///
/// `RedisStore` and [`MemoryStore`] are stores. One of your own reads a value, applies the call to it and
/// writes the result, in one transaction. It stores bytes, usually a few hundred and up to 12 kB, or more if many processes wait
/// for one key. A value belongs to the name of a policy, up to 128 visible ASCII characters, and a key, any text of any length.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Arc;
/// use std::time::{SystemTime, UNIX_EPOCH};
///
/// use tokio::sync::Mutex;
/// use tokio::time::Instant;
/// use tower_throttle::key::Key;
/// use tower_throttle::store::{Answered, Call, Reply, Store, StoreError, Taken};
/// use tower_throttle::{Limiter, Quota};
///
/// /// Stands for a table of a database: values, and when they expire, by policy and key.
/// type Table = HashMap<(Option<String>, Key), (Vec<u8>, u64)>;
///
/// #[derive(Debug, Default)]
/// struct Database(Arc<Mutex<Table>>);
///
/// /// Stands for the clock of the database. Those of hosts differ, and would let too many requests depart.
/// fn database_clock() -> u64 {
///     let now = SystemTime::now().duration_since(UNIX_EPOCH);
///     now.unwrap_or_default().as_micros() as u64
/// }
///
/// /// A transaction.
/// fn change(table: &mut Table, call: &Call, now: u64) -> Result<Taken, StoreError> {
///     let name = (call.policy().name().map(str::to_owned), call.key().clone());
///     let stored = table.get(&name).filter(|(_, expires)| now < *expires);
///     let value = stored.map(|(value, _)| &value[..]);
///     let (answer, written) = call.apply(value, now)?;
///     if let Some((value, expires)) = written {
///         table.insert(name, (value, expires));
///     }
///     Ok(answer)
/// }
///
/// impl Store for Database {
///     fn call(&self, calls: Vec<Call>) -> Reply {
///         let table = self.0.clone();
///         Box::pin(async move {
///             let sent = Instant::now();
///             let mut table = table.lock().await;
///             let now = database_clock();
///             let answers = calls.iter().map(|call| change(&mut table, call, now));
///             let answers = answers.collect();
///             let received = Instant::now();
///             Ok(Answered { now, server: 1, sent, received, answers })
///         })
///     }
///
///     fn ping(&self, _key: &Key) -> Reply {
///         self.call(Vec::new())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().quota(Quota::per_second(10)).store(Database::default()).build()?;
/// limiter.acquire("api.example.com").await?;
/// # assert_eq!(limiter.peek("api.example.com").await?.remaining(), 9);
/// # Ok(())
/// # }
/// ```
///
/// A store that knows since when it has lost nothing makes [strict recovery](crate::Recovery::Strict) possible by
/// [`Call::apply_strict`]. With [`Call::apply`], only processes that have called for a key notice that its state was lost. The
/// crate `tower-throttle-store-contract` tests a store.
pub trait Store: Any + Debug + Send + Sync {
    /// Applies operations. Each is atomic, and they are independent of each other; all keys are of one
    /// [shard](Self::shard), and a key may come more than once. One transaction may apply all of them, unless an error of
    /// one takes back the others.
    ///
    /// The reply runs in the runtime of the requests, so it must not block: use `tokio::task::spawn_blocking`. It may be dropped at
    /// any time, and is after 5 s, or after 10 s for a [`peek`](crate::Limiter::peek) or a command.
    ///
    /// # Errors
    ///
    /// The reply fails if the shard does not answer. An error of a single key is in its place in the answer. If the call may have
    /// been executed, the error is [`outcome_unknown`](StoreError::outcome_unknown); if it lost against another transaction, it is
    /// a [`conflict`](StoreError::conflict).
    fn call(&self, calls: Vec<Call>) -> Reply;

    /// Reads the clock of the shard that holds this key. The limiter measures round trips by it, and probes a shard that
    /// is out.
    ///
    /// # Errors
    ///
    /// The reply fails if the shard does not answer, or would refuse to write.
    fn ping(&self, key: &Key) -> Reply;

    /// The most calls that the store gets at once. The limiter sends more of them in several batches at the same time,
    /// and waits for the answers to a whole batch. Default: 64.
    fn batch_size(&self) -> usize {
        64
    }

    /// The part of the store that holds a key. One shard may be out while others answer. Default: 0, the only one.
    fn shard(&self, _key: &Key) -> u64 {
        0
    }

    /// Calls this subscriber with each [nudge](Call::nudges) for the [process](Nudge::process) with this number or for all, until
    /// it returns `false`. Other nudges do no harm. The subscriber must not subscribe. Optional: it makes processes call sooner.
    /// Default: never.
    fn subscribe(&self, _process: u64, _subscriber: Box<dyn Fn(&Nudge) -> bool + Send + Sync>) {}

    /// Returns true if nudges of other processes are likely to arrive, also those for this process alone. A process that does not
    /// call soon after one is passed over. If none arrive, processes call more often: the next ones for a place among requests in
    /// progress every 100 ms. Default: `false`.
    fn is_subscribed(&self) -> bool {
        false
    }
}

/// One operation on one key.
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) key: Key,
    pub(crate) policy: Arc<Policy>,
    pub(crate) operation: Operation,
}

/// What is done to the state of a key. It may change with any version.
#[doc(hidden)]
#[allow(
    clippy::large_enum_variant,
    reason = "most operations are of this variant"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Corrects past departures, grants new ones, and keeps the rest of the demand.
    Take(Take),
    /// Applies a command.
    Control(Command),
}

/// The answer of a store, under way.
pub type Reply = Pin<Box<dyn Future<Output = Result<Answered, StoreError>> + Send>>;

/// The answer to calls, in their order.
#[derive(Debug, Clone)]
pub struct Answered {
    /// The store's clock, in microseconds since 1970: read after `sent` and before `received`, such as at the start of the
    /// transaction. Milliseconds are exact enough.
    pub now: u64,
    /// A number of the server process that answered, another one after a failover. 0 if it is unknown: then nothing is learned of
    /// the server's clock from earlier answers.
    pub server: u64,
    /// When the calls were sent.
    pub sent: Instant,
    /// When the answer arrived.
    pub received: Instant,
    /// An answer for each call.
    pub answers: Vec<Result<Taken, StoreError>>,
}

impl Call {
    #[doc(hidden)]
    pub fn new(key: &Key, policy: &Policy, operation: &Operation) -> Self {
        Self {
            key: key.clone(),
            policy: Arc::new(policy.clone()),
            operation: operation.clone(),
        }
    }

    /// The limiter's key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The policy. State belongs to the pair of its name and the key.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    #[doc(hidden)]
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Applies the operation to the value that the store keeps for the key, if any, at `now` on the store's clock, in microseconds
    /// since 1970. Returns the answer, and the new value with the time when it expires, in microseconds, too, unless the value
    /// stays as it is. It may be kept longer, but no shorter.
    ///
    /// # Errors
    ///
    /// Fails, and nothing may be written, if the value was not written by this crate or by a later version of it, or
    /// if a request costs more than the quotas allow.
    #[allow(clippy::type_complexity, reason = "it is read in place")]
    pub fn apply(
        &self,
        value: Option<&[u8]>,
        now: u64,
    ) -> Result<(Taken, Option<(Vec<u8>, u64)>), StoreError> {
        self.apply_strict(value, now, 0, 0)
    }

    /// Like [`apply`](Self::apply), with the number of the server process, and the time in microseconds since which it has seen
    /// every call: earlier departures may be lost.
    ///
    /// # Errors
    ///
    /// Fails like [`apply`](Self::apply).
    #[allow(clippy::type_complexity, reason = "it is read in place")]
    pub fn apply_strict(
        &self,
        value: Option<&[u8]>,
        now: u64,
        server: u64,
        since: u64,
    ) -> Result<(Taken, Option<(Vec<u8>, u64)>), StoreError> {
        let origin = Origin { server, since };
        let mut state = match value {
            Some(value) => State::decode(value)?,
            None => State::default(),
        };
        let answer = self
            .operation
            .apply(&self.policy, &mut state, origin, now)?;
        let is_peek = matches!(&self.operation, Operation::Take(take) if take.mode == Mode::Peek);
        let is_written = !is_peek && !answer.is_outdated;
        let written = is_written.then(|| (state.encode(), state.expires()));
        Ok((answer, written))
    }
}

impl Operation {
    /// Applies the operation to a decoded state.
    pub(crate) fn apply(
        &self,
        policy: &Policy,
        state: &mut State,
        origin: Origin,
        now: u64,
    ) -> Result<Taken, StoreError> {
        state.continue_as(&policy.counters, now);
        let buffer = policy.buffer_micros();
        Ok(match self {
            Self::Take(take) => {
                if !take.demand.largest_cost().is_within(&policy.largest_costs) {
                    let error = StoreError::new("a request costs more than the quotas allow");
                    return Err(error.no_outage());
                }
                state.verify(buffer, take, origin, now);
                state.take(buffer, take, now)
            }
            Self::Control(command) => state.control(*command, now),
        })
    }
}
