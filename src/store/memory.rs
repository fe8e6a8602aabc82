//! The embedded store: [`MemoryStore`].

use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::time::Time;
use super::listen::{Listen, Listeners};
use super::{Notice, Release, Reply, Reserve, Reserved, Store, Terms, Word};
use crate::algorithm::ledger::{AtOnce, Ledger};
use crate::key::Key;
use crate::policy::Policy;
#[cfg(feature = "test-util")]
use crate::test_util::ManualClock;

mod time;

const SHARDS: usize = 32;

/// The least number of keys in a shard for which it looks for expired ones.
const SMALL: usize = 64;

/// Reserves slots within the process: what a [`Limiter`](crate::Limiter) uses unless told otherwise.
///
/// Clones share their state, so that limiters of the same policy share its quotas. A key is
/// forgotten once nothing recorded for it has any influence; memory is bounded by about twice the
/// keys that are alive at once, however many were ever seen.
///
/// The clock is tokio's, so that time can be paused (`tokio::time::pause`) in tests; see
/// [there](crate::testing).
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    shards: [Mutex<Shard>; SHARDS],
    hasher: DefaultHashBuilder,
    time: Time,
    listeners: Listeners,
}

struct Shard {
    entries: HashTable<Entry>,
    /// How many entries there may be before the expired ones are looked for.
    sweep_at: usize,
    /// The latest time that anybody came with.
    latest: u64,
}

struct Entry {
    hash: u64,
    policy: Arc<str>,
    key: Key,
    ledger: Ledger,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::by(Time::local())
    }

    /// An empty store that takes the time from this clock; see [there](ManualClock) what is told by it.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn with_clock(clock: ManualClock) -> Self {
        Self::by(Time::by(clock))
    }

    fn by(time: Time) -> Self {
        let shard = || {
            Mutex::new(Shard {
                entries: HashTable::new(),
                sweep_at: SMALL,
                latest: 0,
            })
        };
        Self(Arc::new(Inner {
            shards: std::array::from_fn(|_| shard()),
            hasher: DefaultHashBuilder::default(),
            time,
            listeners: Listeners::default(),
        }))
    }

    /// How many keys the store holds, expired ones that were not yet looked for included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0
            .shards
            .iter()
            .map(|shard| shard.lock().entries.len())
            .sum()
    }

    /// Whether the store holds no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reserves a slot for one request that departs at once or not at all, as
    /// [`reserve`](Store::reserve) would; and says whether it had to wait for other requests. The time
    /// is that of `sent`, as reading the clock takes longer than all the rest.
    #[inline]
    pub(crate) fn reserve_now(
        &self,
        key: &Key,
        policy: &Policy,
        terms: &Terms,
        cost: u32,
        sent: Instant,
    ) -> (AtOnce, bool) {
        let hash = self.hash(policy, key);
        let sent = self.0.time.at(sent);
        let shard = self.shard(hash);
        let (mut shard, waited) = match shard.try_lock() {
            Some(shard) => (shard, false),
            None => (shard.lock(), true),
        };
        let now = shard.tick(&self.0.time, sent);
        let ledger = shard.ledger(hash, policy, key);
        (ledger.reserve_now(now, terms, cost), waited)
    }

    fn hash(&self, policy: &Policy, key: &Key) -> u64 {
        self.0.hasher.hash_one((policy.id_hash(), key.as_str()))
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // The table uses the lowest and the highest bits.
        &self.0.shards[(hash >> 32) as usize % SHARDS]
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

impl Store for MemoryStore {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let Reserve { key, policy, .. } = *reserve;
        if let Err(error) = reserve.check() {
            return Reply::ready(Err(error));
        }
        let hash = self.hash(policy, key);
        let mut shard = self.shard(hash).lock();
        let now = shard.tick(&self.0.time, self.0.time.now());
        let ledger = shard.ledger(hash, policy, key);
        // It was born with whoever asks.
        let lacks = |evidence| ledger.doubt(now, evidence, 0);
        let is_lost = reserve.evidence.is_some_and(lacks);
        let answer = ledger.answer(now, &reserve.terms(), reserve.asks, is_lost);
        Reply::ready(Ok(answer))
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let Reserve { key, policy, .. } = *reserve;
        if let Err(error) = reserve.check() {
            return Reply::ready(Err(error));
        }
        let terms = Terms {
            peek: true,
            ..reserve.terms()
        };
        let hash = self.hash(policy, key);
        let mut shard = self.shard(hash).lock();
        let now = shard.tick(&self.0.time, self.0.time.now());
        let is_it = |entry: &Entry| entry.is(policy, key);
        let answer = match shard.entries.find_entry(hash, is_it) {
            Ok(mut entry) => entry
                .get_mut()
                .ledger
                .answer(now, &terms, reserve.asks, false),
            Err(_) => Ledger::new(policy.rules()).answer(now, &terms, reserve.asks, false),
        };
        Reply::ready(Ok(answer))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        let hash = self.hash(policy, key);
        let is_it = |entry: &Entry| entry.is(policy, key);
        let mut shard = self.shard(hash).lock();
        if let Ok(entry) = shard.entries.find_entry(hash, is_it) {
            entry.remove();
        }
        Reply::ready(Ok(()))
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        let Release {
            key,
            policy,
            slots,
            life,
        } = *release;
        let hash = self.hash(policy, key);
        let mut shard = self.shard(hash).lock();
        let now = shard.tick(&self.0.time, self.0.time.now());
        let is_it = |entry: &Entry| entry.is(policy, key);
        if let Ok(mut entry) = shard.entries.find_entry(hash, is_it) {
            entry.get_mut().ledger.release_under(now, life, slots);
            if entry.get().ledger.lasts() <= now {
                entry.remove();
            }
        }
        Reply::ready(Ok(()))
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        let hash = self.hash(policy, key);
        let is_it = |entry: &Entry| entry.is(policy, key);
        let mut shard = self.shard(hash).lock();
        let now = shard.tick(&self.0.time, self.0.time.now());
        let notice = match (shard.entries.find_entry(hash, is_it), word) {
            (Ok(mut entry), _) => entry.get_mut().ledger.heed(now, word),
            (Err(_), Word::None | Word::Resume) => Ledger::new(policy.rules()).heed(now, word),
            (Err(_), _) => shard.ledger(hash, policy, key).heed(now, word),
        };
        drop(shard);
        if notice.until > 0 && word != Word::None {
            self.0.listeners.hear(policy.id(), key, notice);
        }
        if notice.is_quarantine() {
            let mut shard = self.shard(hash).lock();
            if let Ok(mut entry) = shard.entries.find_entry(hash, is_it) {
                entry.get_mut().ledger.tell();
            }
        }
        Reply::ready(Ok(notice))
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        self.0.listeners.add(listener);
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn is_local(&self) -> bool {
        true
    }
}

impl Shard {
    /// The time now, of a call that was made at `read`.
    #[inline]
    fn tick(&mut self, time: &Time, read: u64) -> u64 {
        self.latest = time.tick(self.latest, read);
        self.latest
    }

    /// The ledger of a key, a new one if need be.
    #[inline]
    fn ledger(&mut self, hash: u64, policy: &Policy, key: &Key) -> &mut Ledger {
        let is_it = |entry: &Entry| entry.hash == hash && entry.is(policy, key);
        match self.entries.find_entry(hash, is_it) {
            Ok(entry) => &mut entry.into_mut().ledger,
            Err(absent) => {
                let entries = absent.into_table();
                insert(
                    entries,
                    &mut self.sweep_at,
                    self.latest,
                    Entry::new(hash, policy, key),
                )
            }
        }
    }
}

/// Adds a ledger, and first removes those that have expired if as many keys have come as were alive the
/// last time, so that each costs a constant amount of sweeping.
#[cold]
fn insert<'a>(
    entries: &'a mut HashTable<Entry>,
    sweep_at: &mut usize,
    now: u64,
    entry: Entry,
) -> &'a mut Ledger {
    let hash = |entry: &Entry| entry.hash;
    if entries.len() >= *sweep_at {
        entries.retain(|entry| entry.ledger.lasts() > now);
        *sweep_at = SMALL.max(entries.len() * 2);
        entries.shrink_to(*sweep_at, hash);
    }
    &mut entries
        .insert_unique(entry.hash, entry, hash)
        .into_mut()
        .ledger
}

impl Entry {
    fn new(hash: u64, policy: &Policy, key: &Key) -> Self {
        Self {
            hash,
            policy: policy.shared_id().clone(),
            key: key.clone(),
            ledger: Ledger::new(policy.rules()),
        }
    }

    fn is(&self, policy: &Policy, key: &Key) -> bool {
        let id = policy.shared_id();
        self.key == *key && (Arc::ptr_eq(&self.policy, id) || self.policy == *id)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::PolicyParts;
    use crate::quota::Quota;

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_by_the_keys_that_are_alive() {
        let policy = PolicyParts {
            quotas: [Quota::per_second(1)].into_iter().collect(),
            ..PolicyParts::default()
        };
        let policy = policy.build().unwrap();
        let store = MemoryStore::new();
        for round in 0..10 {
            for i in 0..10_000 {
                let key = Key::from(format!("{round}-{i}"));
                store.reserve(&Reserve::new(&key, &policy)).await.unwrap();
            }
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        assert!(
            store.len() <= 20_000 + SHARDS * SMALL,
            "{} keys are held",
            store.len()
        );
    }
}
