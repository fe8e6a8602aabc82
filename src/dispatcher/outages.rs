//! The shards of a store that are out: [`Outages`] and [`Health`].

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff;
use crate::error::StoreError;
use crate::lock::Mutex;

/// The pauses between probes of a shard that is out.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A shard that is out again within so long is probed as rarely as before: it answers probes and fails calls.
const AGAIN: Duration = Duration::from_secs(2);

/// The shards that are out.
#[derive(Debug, Default)]
pub(super) struct Outages(Mutex<HashMap<u64, Outage>>);

#[derive(Debug)]
struct Outage {
    error: StoreError,
    since: Instant,
    probes: u32,
    ended: Option<Instant>,
}

/// The change by a failure.
pub(super) struct Begun {
    /// When the next probe is due.
    pub(super) probe: Instant,
    /// True if the shard was not out before.
    pub(super) is_new: bool,
    /// How many other shards are out.
    pub(super) others: usize,
}

impl Outages {
    /// Why a shard does not answer, if it is out.
    pub(super) fn error(&self, shard: u64) -> Option<StoreError> {
        let outages = self.0.lock();
        let outage = outages.get(&shard).filter(|outage| outage.ended.is_none());
        outage.map(|outage| outage.error.clone())
    }

    pub(super) fn health(&self) -> Health {
        let outages = self.0.lock();
        let out = || outages.values().filter(|outage| outage.ended.is_none());
        let first = out().min_by_key(|outage| outage.since);
        Health {
            shards_out: out().count(),
            out: first.map(|outage| (outage.since, outage.error.clone())),
        }
    }

    /// A call or a ping of a shard has failed. `None` if a call shows what was known, so that a probe is due already.
    pub(super) fn failed(&self, shard: u64, error: &StoreError, is_ping: bool) -> Option<Begun> {
        let now = Instant::now();
        let mut outages = self.0.lock();
        outages.retain(|_, outage| outage.ended.is_none_or(|ended| now < ended + AGAIN));
        let others = |(other, outage): &(&u64, &Outage)| **other != shard && outage.ended.is_none();
        let others = outages.iter().filter(others).count();
        let outage = outages.entry(shard).or_insert_with(|| Outage {
            error: error.clone(),
            since: now,
            probes: 0,
            ended: Some(now),
        });
        let is_new = outage.ended.take().is_some();
        if !is_new && !is_ping {
            return None;
        }
        if is_new {
            outage.since = now;
        }
        outage.error = error.clone();
        outage.probes += 1;
        let pause = backoff::half_before(outage.probes, FIRST_PAUSE, LONGEST_PAUSE);
        Some(Begun {
            probe: now + pause,
            is_new,
            others,
        })
    }

    /// A shard has answered a ping: how long it was out, if it was, and how many others are.
    pub(super) fn ended(&self, shard: u64) -> Option<(Duration, usize)> {
        let now = Instant::now();
        let mut outages = self.0.lock();
        let outage = outages.get_mut(&shard);
        let outage = outage.filter(|outage| outage.ended.is_none())?;
        outage.ended = Some(now);
        let lasted = now - outage.since;
        let others = outages.values().filter(|outage| outage.ended.is_none());
        Some((lasted, others.count()))
    }
}

/// Whether the store of a limiter is out; see [`Limiter::health`](crate::Limiter::health).
#[derive(Debug, Clone)]
pub struct Health {
    shards_out: usize,
    /// The time and the error of the first shard that is out.
    out: Option<(Instant, StoreError)>,
}

impl Health {
    /// Whether the store is out, or a shard of it. The [outage policy](crate::Outage) then holds for the keys of that
    /// shard.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.out.is_some()
    }

    /// The beginning of the outage; of the first one if several shards are out.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        self.out.as_ref().map(|(since, _)| *since)
    }

    /// The error of the last call or probe.
    #[must_use]
    pub fn error(&self) -> Option<&StoreError> {
        self.out.as_ref().map(|(_, error)| error)
    }

    /// How many [shards](crate::store::Store::shard) of the store are out, of those that were called: at most 1, except
    /// in a cluster, in which each server is a shard.
    #[must_use]
    pub fn shards_out(&self) -> usize {
        self.shards_out
    }
}
