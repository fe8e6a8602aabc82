//! Quotas that hold jointly for a key, and the bounds on waiting: [`Policy`].

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::{Rule, ledger::Terms};
use crate::outage::Outage;
use crate::quota::{Algorithm, Quota};
use crate::recovery::Recovery;
use crate::state::Counter;

mod id;
mod parts;

pub(crate) use self::parts::{Flaw, Part, Plan, PolicyParts, check_name};

/// Quotas that hold jointly for a key, with a name, and the bounds on waiting.
///
/// [`Limiter::builder`](crate::Limiter::builder) makes it; a [`Store`](crate::store::Store) reads it.
#[derive(Debug, Clone)]
pub struct Policy {
    name: Option<Box<str>>,
    quotas: SmallVec<[Quota; 2]>,
    rules: SmallVec<[Rule; 2]>,
    buffer: Duration,
    guard: Duration,
    max_wait: Option<Duration>,
    max_waiting: Option<usize>,
    outage: Outage,
    recovery: Recovery,
    id: Arc<str>,
    /// The same, hashed, for stores that hash it together with each key.
    id_hash: u64,
    largest_cost: u32,
    buffer_micros: u64,
    terms: Terms,
    /// The quotas, with nothing recorded.
    counters: SmallVec<[Counter; 1]>,
}

impl Policy {
    /// The policy's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The quotas, in the order in which they were given.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// Extra spacing for the jitter between departure and arrival upstream.
    #[must_use]
    pub fn buffer(&self) -> Duration {
        self.buffer
    }

    /// The least by which a request may depart later than its slot.
    #[must_use]
    pub fn guard(&self) -> Duration {
        self.guard
    }

    /// The longest wait; `None` for as long as it takes.
    #[must_use]
    pub fn max_wait(&self) -> Option<Duration> {
        self.max_wait
    }

    /// The longest line per key and process; `None` for any length.
    #[must_use]
    pub fn max_waiting(&self) -> Option<usize> {
        self.max_waiting
    }

    /// What becomes of requests while the store cannot answer.
    #[must_use]
    pub fn outage(&self) -> Outage {
        self.outage
    }

    /// What becomes of a key whose state the store has lost.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// The most one request may cost.
    #[must_use]
    pub fn largest_cost(&self) -> u32 {
        self.largest_cost
    }

    /// The text that names the state of this policy in a store: the name, if any, and every quota.
    ///
    /// Two limiters share state exactly if this text, the key and the store are the same. So a
    /// changed quota starts clean and never mixes with the old one's state; the buffer, the guard
    /// and the bounds on waiting are no part of it. ASCII without white space or braces.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn shared_id(&self) -> &Arc<str> {
        &self.id
    }

    pub(crate) fn buffer_micros(&self) -> u64 {
        self.buffer_micros
    }

    pub(crate) fn id_hash(&self) -> u64 {
        self.id_hash
    }

    /// What holds for a request that departs at once, with no more of a guard than there has to be.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// How long the leaky buckets let a request wait: as long as the last of their capacity.
    #[allow(dead_code, reason = "the next core uses it")]
    pub(crate) fn leaky_wait(&self, guard: Duration) -> Option<Duration> {
        let waits = self
            .quotas
            .iter()
            .filter_map(|quota| match quota.counted_by() {
                Algorithm::LeakyBucket { capacity } => {
                    let interval =
                        (quota.window().as_micros() as u64).div_ceil(quota.limit().into());
                    let step = Duration::from_micros(interval) + guard + self.buffer;
                    Some(step.saturating_mul(capacity))
                }
                _ => None,
            });
        waits.min()
    }

    /// The quotas, with nothing recorded.
    #[allow(dead_code, reason = "the next core uses it")]
    pub(crate) fn counters(&self) -> &[Counter] {
        &self.counters
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }
}
