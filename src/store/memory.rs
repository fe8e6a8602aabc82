//! The embedded store: [`MemoryStore`].

use std::fmt;
use std::future::ready;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hashbrown::{DefaultHashBuilder, HashTable};
use tokio::time::Instant;

use super::{Answered, Call, Operation, Store};
use crate::algorithm::{Attempt, Costs, Origin, State, Taken};
use crate::key::Key;
use crate::lock::Mutex;
use crate::policy::Policy;
use crate::store::{Reply, StoreError};

const SHARDS: usize = 32;

/// The least number of keys in a shard at which expired ones are dropped.
const SMALL: usize = 64;

/// How long expired keys stay at most if the shard is called, in microseconds.
const SWEEP_PERIOD: u64 = 60_000_000;

/// Keeps state within the process: the store of a [`Limiter`](crate::Limiter) unless set otherwise.
///
/// Clones share their state. A key is dropped some time after nothing recorded for it counts any more: with calls a
/// minute later, and before there are more than 2,048, or about twice the keys that count at once.
///
/// The clock is tokio's, so that tests can pause it. It begins with the host's time when the store is made, and fixed windows
/// do not follow later corrections of that.
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    shards: [Mutex<Shard>; SHARDS],
    hasher: DefaultHashBuilder,
    /// The store's time in microseconds since 1970, by an instant and the latest time that the shard has seen. A local clock
    /// does not go back behind that.
    clock: Box<dyn Fn(Instant, u64) -> u64 + Send + Sync>,
    /// When the state of all keys was lost.
    cleared: AtomicU64,
}

#[derive(Default)]
struct Shard {
    /// With the hashes of their names and keys. Half of a table may be empty, so it holds pointers.
    entries: HashTable<(u64, Box<Entry>)>,
    /// At how many entries expired ones are dropped; 0 before the first call.
    sweep_at: usize,
    /// When they are dropped otherwise.
    sweep_after: u64,
    /// The latest time of a call: none goes back behind it.
    latest: u64,
}

struct Entry {
    name: Option<Box<str>>,
    key: Key,
    /// The [number](Policy::number) of the policy under which the state was used last.
    policy: u64,
    state: State,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let start_micros = since_epoch.unwrap_or_default().as_micros() as u64;
        let start = Instant::now();
        Self::by(move |at, latest| {
            let elapsed = at.saturating_duration_since(start).as_micros() as u64;
            latest.max(start_micros + elapsed)
        })
    }

    /// An empty store that reads this clock; see [`ManualClock`](super::ManualClock).
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn with_clock(clock: super::ManualClock) -> Self {
        Self::by(move |_, _| clock.micros())
    }

    fn by(clock: impl Fn(Instant, u64) -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            shards: Default::default(),
            hasher: DefaultHashBuilder::default(),
            clock: Box::new(clock),
            cleared: AtomicU64::new(0),
        }))
    }

    /// The number of keys, with expired ones that were not dropped yet.
    pub fn key_count(&self) -> usize {
        let count = |shard: &Mutex<Shard>| shard.lock().entries.len();
        self.0.shards.iter().map(count).sum()
    }

    /// Forgets the state of all keys.
    #[cfg(feature = "test-util")]
    pub(crate) fn clear(&self) {
        let now = (self.0.clock)(Instant::now(), 0);
        self.0.cleared.store(now, Ordering::Relaxed);
        let shards = self.0.shards.iter();
        shards.for_each(|shard| shard.lock().entries.clear());
    }

    /// Applies an operation that was called at `sent`, as reading the clock takes longer than the rest.
    pub(crate) fn apply(
        &self,
        key: &Key,
        policy: &Policy,
        operation: &Operation,
        sent: Instant,
    ) -> (u64, Result<Taken, StoreError>) {
        let since = self.0.cleared.load(Ordering::Relaxed);
        self.change(key, policy, sent, |state, now| {
            let origin = Origin { server: 0, since };
            let answer = operation.apply(policy, state, origin, now);
            (now, answer)
        })
    }

    /// Lets one request depart at once, or nothing; see [`State::try_one`].
    #[inline]
    pub(crate) fn try_one(
        &self,
        key: &Key,
        policy: &Policy,
        cost: Costs,
        guard: Duration,
        sent: Instant,
    ) -> Option<(u64, Attempt)> {
        let lateness = guard.as_micros() as u64 + policy.buffer_micros();
        self.change(key, policy, sent, |state, now| {
            let attempt = state.try_one(lateness, cost, now);
            attempt.map(|attempt| (now, attempt))
        })
    }

    /// Changes the state of a key, at a time that is not earlier than that of the last change.
    #[inline(always)]
    fn change<T>(
        &self,
        key: &Key,
        policy: &Policy,
        sent: Instant,
        change: impl FnOnce(&mut State, u64) -> T,
    ) -> T {
        let name = policy.name();
        let hash = self.0.hasher.hash_one((name, key.as_str()));
        // The table uses the lowest and the highest bits.
        let mut shard = self.0.shards[(hash >> 32) as usize % SHARDS].lock();
        let now = (self.0.clock)(sent, shard.latest);
        shard.latest = now;
        if shard.entries.len() >= shard.sweep_at || now >= shard.sweep_after {
            shard.sweep(now);
        }
        let is_it = |(its_hash, entry): &(u64, Box<Entry>)| {
            *its_hash == hash && entry.name.as_deref() == name && entry.key == *key
        };
        let (_, entry) = match shard.entries.find_entry(hash, is_it) {
            Ok(entry) => entry.into_mut(),
            Err(absent) => {
                let entry = Entry {
                    name: name.map(Into::into),
                    key: key.clone(),
                    policy: policy.number,
                    state: State::new(&policy.counters),
                };
                let (entries, new) = (absent.into_table(), (hash, Box::new(entry)));
                entries
                    .insert_unique(hash, new, |(hash, _)| *hash)
                    .into_mut()
            }
        };
        if entry.policy != policy.number {
            entry.state.continue_as(&policy.counters, now);
            entry.policy = policy.number;
        }
        change(&mut entry.state, now)
    }
}

impl Shard {
    #[cold]
    fn sweep(&mut self, now: u64) {
        self.entries
            .retain(|(_, entry)| now < entry.state.expires());
        self.sweep_at = SMALL.max(2 * self.entries.len());
        self.sweep_after = now + SWEEP_PERIOD;
        self.entries.shrink_to(self.sweep_at, |(hash, _)| *hash);
    }
}

impl MemoryStore {
    /// Applies calls; a limiter with this store or a fallback on it need not wait.
    pub(crate) fn answer(&self, calls: &[Call]) -> Answered {
        let sent = Instant::now();
        let at_first = (self.0.clock)(sent, 0);
        let mut now = at_first;
        let answers = calls.iter().map(|call| {
            let (at, answer) = self.apply(&call.key, &call.policy, &call.operation, sent);
            now = now.max(at);
            answer
        });
        let answers = answers.collect();
        // Another thread may have read the clock later.
        let received = if now > at_first { Instant::now() } else { sent };
        Answered {
            now,
            server: 1,
            sent,
            received,
            answers,
        }
    }
}

impl Store for MemoryStore {
    fn call(&self, calls: Vec<Call>) -> Reply {
        Box::pin(ready(Ok(self.answer(&calls))))
    }

    fn ping(&self, _key: &Key) -> Reply {
        self.call(Vec::new())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
