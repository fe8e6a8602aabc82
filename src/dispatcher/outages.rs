//! The shards of a store that are out: [`Outages`] and [`Health`].

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff;
use crate::error::StoreError;
use crate::key::Key;

/// The pauses between probes of a shard that is out.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A shard that is out again within so long is probed as rarely as before: it answers probes and fails calls.
const AGAIN: Duration = Duration::from_secs(2);

/// The shards that are out.
#[derive(Debug, Default)]
pub(super) struct Outages(HashMap<u64, Outage>);

#[derive(Debug)]
struct Outage {
    error: StoreError,
    since: Instant,
    probes: u32,
    /// When the next probe is due, and a key of the shard. `None` while one is under way.
    probe: Option<(Instant, Key)>,
    ended: Option<Instant>,
}

impl Outages {
    /// The shards that are out.
    fn out(&self) -> impl Iterator<Item = &Outage> {
        self.0.values().filter(|outage| outage.ended.is_none())
    }

    /// Why a shard does not answer, if it is out.
    pub(super) fn error(&self, shard: u64) -> Option<StoreError> {
        let outage = self.0.get(&shard).filter(|outage| outage.ended.is_none());
        outage.map(|outage| outage.error.clone())
    }

    /// When probes are due.
    pub(super) fn probes(&self) -> impl Iterator<Item = Instant> {
        let probes = self.0.values().filter_map(|outage| outage.probe.as_ref());
        probes.map(|(at, _)| *at)
    }

    /// The shards to probe now, each with a key that it holds.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(u64, Key)> {
        let due = self.0.iter_mut().filter_map(|(&shard, outage)| {
            let (_, key) = outage.probe.take_if(|(at, _)| *at <= now)?;
            Some((shard, key))
        });
        due.collect()
    }

    pub(super) fn health(&self) -> Health {
        let first = self.out().min_by_key(|outage| outage.since);
        Health {
            shards_out: self.out().count(),
            out: first.map(|outage| (outage.since, outage.error.clone())),
        }
    }

    /// A call or a ping of a shard, which holds this key, has failed: it is probed. Returns whether the shard was not out
    /// before, and how many others are. `None` if a call shows what was known.
    pub(super) fn failed(
        &mut self,
        shard: u64,
        key: &Key,
        error: &StoreError,
        is_ping: bool,
    ) -> Option<(bool, usize)> {
        let now = Instant::now();
        self.0
            .retain(|_, outage| outage.ended.is_none_or(|ended| now < ended + AGAIN));
        let outage = self.0.entry(shard).or_insert_with(|| Outage {
            error: error.clone(),
            since: now,
            probes: 0,
            probe: None,
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
        let pause = backoff::before(outage.probes, FIRST_PAUSE, LONGEST_PAUSE);
        outage.probe = Some((now + pause, key.clone()));
        Some((is_new, self.out().count() - 1))
    }

    /// A shard has answered a ping: how long it was out, if it was, and how many others are.
    pub(super) fn ended(&mut self, shard: u64) -> Option<(Duration, usize)> {
        let now = Instant::now();
        let outage = self.0.get_mut(&shard);
        let outage = outage.filter(|outage| outage.ended.is_none())?;
        (outage.ended, outage.probe) = (Some(now), None);
        let lasted = now - outage.since;
        Some((lasted, self.out().count()))
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
    pub fn is_out(&self) -> bool {
        self.out.is_some()
    }

    /// The beginning of the outage; of the first one if several shards are out.
    pub fn since(&self) -> Option<Instant> {
        self.out.as_ref().map(|(since, _)| *since)
    }

    /// The error of the last probe, or of the call that began the outage.
    pub fn error(&self) -> Option<&StoreError> {
        self.out.as_ref().map(|(_, error)| error)
    }

    /// How many [shards](crate::store::Store::shard) of the store are out, of those that were called: at most 1, except
    /// in a cluster, in which each server is a shard.
    pub fn shards_out(&self) -> usize {
        self.shards_out
    }
}
