//! The state of stored keys, for people: [`KeyState`].

use std::time::Duration;

use futures_util::future::join_all;

use super::keys::StoredKey;
use super::{RedisStore, strange, unrecognized};
use crate::algorithm::{Costs, Counter, LANE_BITS, Mode, State, Take, has_share, level};
use crate::priority::Priority;
use crate::quota::{Quota, interned_units, units_of};
use crate::snapshot::Snapshot;
use crate::store::StoreError;

/// Values are read up to this length. That of a key for which 10,000 processes wait takes some 2 MB.
const LONGEST: usize = 16 * 1024 * 1024;

/// So many values are read at the same time.
const AT_ONCE: usize = 500;

impl RedisStore {
    /// Reads the state of stored keys, in their order; `None` of a key without any. It changes nothing.
    ///
    /// # Errors
    ///
    /// Fails for the keys of a server that cannot be reached, takes too long, or refuses, and for keys whose value this
    /// crate did not write. The user needs the right to `PTTL`.
    pub async fn look(&self, keys: &[StoredKey]) -> Vec<Result<Option<KeyState>, StoreError>> {
        let mut states = Vec::with_capacity(keys.len());
        // A future of very many is polled too often, and all of them would have the same deadline.
        for some in keys.chunks(AT_ONCE) {
            states.extend(join_all(some.iter().map(|stored| self.look_at(stored))).await);
        }
        states
    }

    /// Deletes what Redis holds of a key, also if this crate did not write it. Under strict recovery, limiters take
    /// this for a loss: [`Limiter::reset`](crate::Limiter::reset) is the way to reset a key.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, takes too long, or refuses.
    pub async fn delete(&self, stored: &StoredKey) -> Result<(), StoreError> {
        let name = stored.name(&self.prefix);
        let mut pipe = redis::pipe();
        pipe.cmd("DEL").arg(&name);
        let answers = self.servers.run(&name, &pipe, self.deadline()).await?;
        let answer = answers.into_iter().next().ok_or_else(strange)?;
        answer.into_value().map(drop)
    }

    async fn look_at(&self, stored: &StoredKey) -> Result<Option<KeyState>, StoreError> {
        let name = stored.name(&self.prefix);
        let mut pipe = redis::pipe();
        pipe.cmd("GETRANGE").arg(&name).arg(0).arg(LONGEST - 1);
        pipe.cmd("PTTL").arg(&name);
        let read = self.read(&*self.servers, &name, pipe, self.deadline());
        let ((value, lifetime), at): ((Vec<u8>, i64), _) = read.await?;
        if value.is_empty() {
            return Ok(None);
        }
        let state = State::decode(&value).ok().filter(|state| {
            // A damaged value may have others.
            let mut quotas = state.counters.iter().map(Counter::quota);
            quotas.all(|quota| quota.problem().is_none())
        });
        let state = state.ok_or_else(|| unrecognized(&name))?;
        let expiry = u64::try_from(lifetime).ok().map(Duration::from_millis);
        let bytes = value.len();
        Ok(Some(KeyState::of(name, bytes, expiry, state, at.now)))
    }
}

/// The state of a key under a policy at one moment. It does not know the guard and the buffer of the limiters.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeyState {
    /// The name of the Redis key.
    pub name: String,
    /// The size of the value in bytes.
    pub bytes: usize,
    /// How long until Redis deletes the value.
    pub expiry: Option<Duration>,
    /// The quotas: a concurrency limit first, then the others by window, unit, algorithm and limit.
    pub quotas: Vec<QuotaState>,
    /// The processes whose requests wait, the one with the oldest request first.
    pub waiting: Vec<WaitingProcess>,
    /// As by [`Limiter::peek`](crate::Limiter::peek), of a request that arrives now, behind all others of its priority. The
    /// delay may be longer than shown, never shorter.
    pub snapshot: Snapshot,
    /// How long the key stays paused.
    pub pause: Option<Duration>,
    /// How much of a unit an upstream has announced to accept, and for how long.
    pub allowances: Vec<(&'static str, u32, Duration)>,
    /// How long the key stays in quarantine, because its state was lost.
    pub quarantine: Option<Duration>,
    /// How long ago the generation of the state began, and how often it was written, under strict recovery.
    pub generation: Option<(Duration, u64)>,
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

/// The requests of one process, priority and share that wait for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingProcess {
    /// The random number of the process.
    pub process: u64,
    /// The priority of these requests.
    pub priority: Priority,
    /// A hash of the name of their [`Share`](crate::Share); 2 if the process has too many shares and has combined some.
    pub share: Option<u64>,
    /// The cost of all its requests in each unit.
    pub units: Vec<(&'static str, u64)>,
    /// How long the oldest request has waited.
    pub longest: Duration,
    /// True if the process did not call in time: it may have crashed.
    pub is_overdue: bool,
}

impl KeyState {
    fn of(
        name: String,
        bytes: usize,
        expiry: Option<Duration>,
        mut state: State,
        now: u64,
    ) -> Self {
        state.drop_expired(now);
        let names = units_of(state.counters.iter().map(|it| it.unit));
        // A request that arrives after all others, with a cost of 1 in each unit.
        let one = Costs(std::array::from_fn(|nth| u32::from(nth < names.len())));
        let take = Take {
            process: one.lane(Priority::default().level(), 0),
            ..Take::one(Mode::Peek, one)
        };
        let taken = state.take(0, &take, now);
        let until = |time: u64| {
            let left = time.checked_sub(now).filter(|left| *left > 0);
            left.map(Duration::from_micros)
        };
        let since = |time: u64| Duration::from_micros(now.saturating_sub(time));
        let quotas = state.counters.iter().map(|counter| {
            let (used, capacity) = counter.used(now);
            QuotaState {
                quota: counter.quota(),
                used,
                capacity,
            }
        });
        let mut waiting: Vec<WaitingProcess> = Vec::new();
        for it in state.announced.iter().filter(|it| !it.demand.is_empty()) {
            let units = names.iter().copied().zip(it.demand.units().0);
            let one = WaitingProcess {
                process: it.process >> LANE_BITS,
                priority: Priority::of_level(level(it.process)),
                share: has_share(it.process).then_some(it.flow),
                units: units.collect(),
                longest: since(it.demand.oldest()),
                is_overdue: it.deadline < now,
            };
            let whose = |it: &WaitingProcess| (it.process, it.priority, it.share);
            let Some(same) = waiting.iter_mut().find(|it| whose(it) == whose(&one)) else {
                waiting.push(one);
                continue;
            };
            let sums = same.units.iter_mut().zip(one.units);
            sums.for_each(|(sum, units)| sum.1 += units.1);
            same.longest = same.longest.max(one.longest);
            same.is_overdue |= one.is_overdue;
        }
        waiting.sort_by_key(|it| std::cmp::Reverse(it.longest));
        let commands = state.commands.as_deref();
        let generation = state.generation.as_deref();
        let allowed = names.iter().zip(commands.iter().flat_map(|it| it.allowed));
        let allowances = allowed.filter_map(|(name, it)| Some((*name, it.units, until(it.until)?)));
        Self {
            name,
            bytes,
            expiry,
            quotas: quotas.collect(),
            waiting,
            pause: until(taken.paused_until),
            quarantine: until(taken.quarantined_until),
            allowances: allowances.collect(),
            generation: generation.map(|it| (since(it.began), it.version)),
            snapshot: Snapshot::of(&taken, interned_units(&names), now),
        }
    }
}
