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
}

impl Outages {
    /// Why a shard does not answer, if it is out.
    pub(super) fn error(&self, shard: u64) -> Option<StoreError> {
        self.0.get(&shard).map(|outage| outage.error.clone())
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
        let first = self.0.values().min_by_key(|outage| outage.since);
        Health {
            shards_out: self.0.len(),
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
        let is_new = !self.0.contains_key(&shard);
        let outage = self.0.entry(shard).or_insert_with(|| Outage {
            error: error.clone(),
            since: now,
            probes: 0,
            probe: None,
        });
        if !is_new && !is_ping {
            return None;
        }
        outage.error = error.clone();
        outage.probes += 1;
        let pause = backoff::before(outage.probes, FIRST_PAUSE, LONGEST_PAUSE);
        outage.probe = Some((now + pause, key.clone()));
        Some((is_new, self.0.len() - 1))
    }

    /// A shard has answered a ping: how long it was out, if it was, and how many others are.
    pub(super) fn ended(&mut self, shard: u64) -> Option<(Duration, usize)> {
        let outage = self.0.remove(&shard)?;
        Some((outage.since.elapsed(), self.0.len()))
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
