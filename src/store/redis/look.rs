//! The state of stored keys, for people: [`KeyState`].

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures_util::future::join_all;
use redis::FromRedisValue as _;

use super::keys::StoredKey;
use super::servers::CommandAnswer;
use super::{Inner, RedisStore, naming, strange, unrecognized};
use crate::algorithm::{Announcement, Mode, State, Take, Taken};
use crate::quota::Quota;
use crate::store::StoreError;

/// Values are read up to this length. No value of this crate is as long.
const LONGEST: usize = 256 * 1024;

/// The most keys that one pipeline reads.
const BATCH: usize = 100;

impl RedisStore {
    /// Reads the state of stored keys, in their order; `None` of a key without any. It changes nothing.
    ///
    /// # Errors
    ///
    /// Fails for the keys of a server that cannot be reached, takes too long, or refuses, and for keys whose value this
    /// crate did not write. The user needs the right to `PTTL`.
    pub async fn look(&self, keys: &[StoredKey]) -> Vec<Result<Option<KeyState>, StoreError>> {
        let inner = &self.0;
        let mut by_shard = BTreeMap::<_, Vec<_>>::new();
        for (place, stored) in keys.iter().enumerate() {
            let name = stored.name(&inner.options.prefix);
            let shard = by_shard.entry(inner.servers.shard(&name)).or_default();
            shard.push((place, name));
        }
        let batches = by_shard.values().flat_map(|names| names.chunks(BATCH));
        let looks = batches.map(async |batch| {
            let states = match inner.read_batch(batch).await {
                Ok(states) => states,
                Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            };
            batch.iter().map(|(place, _)| *place).zip(states)
        });
        let mut states: Vec<_> = join_all(looks).await.into_iter().flatten().collect();
        states.sort_by_key(|(place, _)| *place);
        states.into_iter().map(|(_, state)| state).collect()
    }

    /// Deletes what Redis holds of a key, also if this crate did not write it. Under strict recovery, limiters take
    /// this for a loss: [`Limiter::reset`](crate::Limiter::reset) is the way to reset a key.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, takes too long, or refuses.
    pub async fn delete(&self, stored: &StoredKey) -> Result<(), StoreError> {
        let name = stored.name(&self.0.options.prefix);
        let mut pipe = redis::pipe();
        pipe.cmd("DEL").arg(&name);
        let answers = self.0.servers.run(&name, &pipe, self.0.deadline()).await?;
        let answer = answers.into_iter().next().ok_or_else(strange)?;
        answer.into_value().map(drop)
    }
}

impl Inner {
    /// Looks at values of one shard.
    async fn read_batch(
        &self,
        names: &[(usize, String)],
    ) -> Result<Vec<Result<Option<KeyState>, StoreError>>, StoreError> {
        let mut pipe = redis::pipe();
        for (_, name) in names {
            pipe.cmd("GETRANGE").arg(name).arg(0).arg(LONGEST - 1);
            pipe.cmd("PTTL").arg(name);
        }
        let (answers, at) = self.read(None, &names[0].1, pipe, self.deadline()).await?;
        let mut answers = answers.into_iter();
        let states = names
            .iter()
            .map_while(|(_, name)| Some(read(name, answers.next()?, answers.next()?, at.now)));
        Ok(states.collect())
    }
}

/// Reads the answers to `GETRANGE` and `PTTL`.
fn read(
    name: &str,
    value: CommandAnswer,
    lifetime: CommandAnswer,
    now: u64,
) -> Result<Option<KeyState>, StoreError> {
    let value = value.into_value().map_err(naming(name))?;
    let lifetime = i64::from_redis_value(lifetime.into_value()?).map_err(|_| strange())?;
    let value = Vec::<u8>::from_redis_value(value).map_err(|_| strange())?;
    if value.is_empty() {
        return Ok(None);
    }
    let mut state = State::decode(&value).map_err(|_| unrecognized(name))?;
    state.drop_expired(now);
    // A request that arrives after all others.
    let peek = Take::one(Mode::Peek, 1);
    Ok(Some(KeyState {
        name: name.to_owned(),
        bytes: value.len(),
        expiry: u64::try_from(lifetime).ok().map(Duration::from_millis),
        now,
        taken: state.take(0, &peek, now),
        state,
    }))
}

/// The state of a key under a policy at one moment. It does not know the guard and the buffer of the limiters.
#[derive(Clone)]
pub struct KeyState {
    name: String,
    bytes: usize,
    expiry: Option<Duration>,
    now: u64,
    taken: Taken,
    state: State,
}

/// A quota, and what is used of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaState {
    /// The quota by which the last call counted. Buckets are shown as a sliding log, and a leaky bucket as spacing.
    pub quota: Quota,
    /// The units that count, with those that are granted and depart soon. GCRA and spacing show the most that may count.
    pub used: u32,
    /// The most units that may count at once.
    pub capacity: u32,
}

/// The requests of one process that wait for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingProcess {
    /// The random number of the process.
    pub process: u64,
    /// The cost of all its requests.
    pub units: u64,
    /// How long the oldest request has waited.
    pub longest: Duration,
    /// True if the process did not call in time: it may have crashed.
    pub is_overdue: bool,
}

impl KeyState {
    /// The quotas, in the policy's order.
    #[must_use]
    pub fn quotas(&self) -> Vec<QuotaState> {
        let counters = self.state.counters.iter();
        let states = counters.map(|counter| {
            let (used, capacity) = counter.used(self.now);
            QuotaState {
                quota: counter.quota(),
                used,
                capacity,
            }
        });
        states.collect()
    }

    /// The processes whose requests wait, the one with the oldest request first.
    #[must_use]
    pub fn waiting(&self) -> Vec<WaitingProcess> {
        let announced = self.state.announced.iter();
        let mut waiting: Vec<_> = announced.filter(|it| !it.demand.is_empty()).collect();
        waiting.sort_by_key(|it| it.demand.oldest());
        let waiting = waiting.into_iter().map(|it: &Announcement| WaitingProcess {
            process: it.process,
            units: it.demand.units(),
            longest: Duration::from_micros(self.now.saturating_sub(it.demand.oldest())),
            is_overdue: it.deadline < self.now,
        });
        waiting.collect()
    }

    /// How many units may depart now.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.taken.remaining
    }

    /// How long a request that arrives now waits, behind all others. It may be longer than this, never shorter.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let departs = self.taken.expected.first();
        self.until(departs.copied().unwrap_or(0))
            .unwrap_or_default()
    }

    /// How long until all units are available again.
    #[must_use]
    pub fn reset(&self) -> Duration {
        self.until(self.taken.reset).unwrap_or_default()
    }

    /// How long the key stays paused.
    #[must_use]
    pub fn pause(&self) -> Option<Duration> {
        self.until(self.taken.paused_until)
    }

    /// The units that an upstream has announced to accept, and for how long.
    #[must_use]
    pub fn allowance(&self) -> Option<(u32, Duration)> {
        let hold = self.state.hold.as_deref()?;
        Some((hold.allowed, self.until(hold.allowed_until)?))
    }

    /// How long the key stays in quarantine, because its state was lost.
    #[must_use]
    pub fn quarantine(&self) -> Option<Duration> {
        self.until(self.taken.quarantined_until)
    }

    /// How long ago the generation of the state began, and how often it was written, under strict recovery.
    #[must_use]
    pub fn generation(&self) -> Option<(Duration, u64)> {
        let life = self.state.life.as_deref()?;
        let age = Duration::from_micros(self.now.saturating_sub(life.generation));
        Some((age, life.version))
    }

    /// The name of the Redis key.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The size of the value in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How long until Redis deletes the value.
    #[must_use]
    pub fn expiry(&self) -> Option<Duration> {
        self.expiry
    }

    fn until(&self, time: u64) -> Option<Duration> {
        let left = time.checked_sub(self.now).filter(|left| *left > 0);
        left.map(Duration::from_micros)
    }
}

impl fmt::Debug for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyState")
            .field("name", &self.name)
            .field("quotas", &self.quotas())
            .field("remaining", &self.remaining())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
