//! Quotas that hold jointly for a key, and the bounds on waiting: [`Policy`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderValue;
use smallvec::SmallVec;

use crate::algorithm::{Costs, Counter, Reserves, are_alike};
use crate::cost::Cost;
use crate::guard::Guard;
use crate::priority::Priority;
use crate::quota::{Algorithm, CONCURRENT, Quota, REQUESTS, UnitNames};

mod outage;
mod parts;

pub use self::outage::{Lost, Outage, Recovery};

use self::parts::default_guard;
pub(crate) use self::parts::{PolicyParts, name_problem};

/// Quotas that hold jointly for a key, with a name, and the bounds on waiting.
///
/// [`Limiter::builder`](crate::Limiter::builder) makes it; a [`Store`](crate::store::Store) reads it.
#[derive(Debug, Clone)]
pub struct Policy {
    pub(crate) parts: PolicyParts,
    /// Every request reads it.
    lease: Option<Duration>,
    pub(crate) label: Arc<str>,
    /// The names of the units that the quotas count, requests first.
    pub(crate) units: UnitNames,
    /// The most that one request may cost in each unit.
    pub(crate) largest_costs: Costs,
    /// The cost of a request that names none; `None` if it can never depart.
    default_costs: Option<Costs>,
    /// The quotas, with nothing recorded.
    pub(crate) counters: SmallVec<[Counter; 1]>,
    /// Policies of the same number have the same counters. A state that has continued under one need not do so again.
    pub(crate) number: u64,
    /// Everything departs, uncounted.
    pub(crate) is_exempt: bool,
    /// The policy that holds instead while the store is out, if anything departs then.
    pub(crate) fallback: Option<Arc<Self>>,
    /// The header field that describes the policy, once a response needs it.
    pub(crate) header: OnceLock<HeaderValue>,
}

/// Equal by everything that the builder sets.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Policy {
    /// The policy's name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.parts.name.as_deref()
    }

    /// The quotas, in the order in which they were given.
    pub fn quotas(&self) -> &[Quota] {
        &self.parts.quotas
    }

    /// Extra spacing for the jitter between departure and arrival upstream.
    pub fn buffer(&self) -> Duration {
        self.parts.buffer
    }

    /// How much later than granted a request may depart. The limiter may lengthen it.
    pub fn guard(&self) -> Duration {
        let default = || default_guard(self.quotas());
        self.parts.guard.unwrap_or_else(default)
    }

    /// The longest wait; `None` for as long as it takes.
    pub fn max_wait(&self) -> Option<Duration> {
        self.parts.max_wait
    }

    /// The most requests that wait per key and process; `None` for any number.
    pub fn max_waiting(&self) -> Option<usize> {
        self.parts.max_waiting
    }

    /// The treatment of requests while the store is out.
    pub fn outage(&self) -> Outage {
        self.parts.outage
    }

    /// The part of the capacity that requests of this priority have for themselves.
    pub fn reserved(&self, priority: Priority) -> f64 {
        self.parts.reserves[priority as usize]
    }

    /// What is done when the store has lost the state of a key.
    pub fn recovery(&self) -> Recovery {
        self.parts.recovery
    }

    /// The reserve of each level, in millionths.
    pub(crate) fn reserves(&self) -> Reserves {
        self.parts.reserves.map(|part| (part * 1e6 + 0.5) as u32)
    }

    /// The most that one request may cost, in requests or else in the first unit by name.
    pub fn largest_cost(&self) -> u32 {
        self.largest_costs.0[0]
    }

    /// The lease of the places, if the quotas limit how many requests are in progress.
    pub fn lease(&self) -> Option<Duration> {
        self.lease
    }

    /// The treatment of work whose place is lost.
    pub fn lost(&self) -> Lost {
        self.parts.lost
    }

    /// The cost of a request in each unit, or the reason why it can never depart.
    /// In a unit that the request does not name, it costs `otherwise`, if that is set and the quotas have no default cost.
    #[inline]
    pub(crate) fn costs_of(&self, cost: &Cost, otherwise: Option<u32>) -> Result<Costs, String> {
        match self.default_costs {
            Some(costs) if cost.is_default() && otherwise.is_none() => Ok(costs),
            _ => self.resolve(cost, otherwise),
        }
    }

    fn resolve(&self, cost: &Cost, otherwise: Option<u32>) -> Result<Costs, String> {
        if self.is_exempt {
            return Ok(Costs::from(1));
        }
        let known = |name| self.units.contains(&name);
        if let Some((name, _)) = cost.each().find(|&(name, cost)| {
            // Each request is a request, also where tokens alone are counted.
            !known(name) && (name, cost) != (REQUESTS, 1)
        }) {
            let units = self.units.join(", ");
            return Err(format!(
                "the request names a cost in {name}, and the quotas count {units}"
            ));
        }
        let mut costs = Costs::default();
        for (nth, name) in self.units.iter().enumerate() {
            let units = cost.of_unit(name).or_else(|| self.default_cost_of(name));
            let units = units.or(otherwise).ok_or_else(|| {
                format!("the request names no cost in {name}, and the quota has no default cost")
            })?;
            let most = self.largest_costs.0[nth];
            if units > most {
                return Err(format!(
                    "a cost of {units} {name} can never depart, as the quotas hold {most}"
                ));
            }
            costs.0[nth] = units;
        }
        if costs.is_zero() {
            return Err("a cost of 0 is no request".to_owned());
        }
        Ok(costs)
    }

    /// The cost in a unit of a request that names none: 1 in requests and places, unless the quotas say otherwise.
    fn default_cost_of(&self, unit: &str) -> Option<u32> {
        let mut alike = self.quotas().iter().filter(|it| it.unit_name() == unit);
        let own = alike.find_map(|quota| quota.default_cost);
        own.or([REQUESTS, CONCURRENT].contains(&unit).then_some(1))
    }

    /// The name, or the quotas as text if it has none, such as `10/s+5000/h`.
    ///
    /// Metrics, events and header fields call the policy so. ASCII without white space.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether a departure counts that the store has recorded, or has not.
    pub(crate) fn counts(&self, is_recorded: bool) -> bool {
        (is_recorded || self.parts.outage != Outage::Allow) && !self.is_exempt
    }

    pub(crate) fn buffer_micros(&self) -> u64 {
        self.parts.buffer.as_micros() as u64
    }

    /// How long the leaky buckets let a request wait: as long as the last of their capacity, though the departure before them
    /// may be recorded later by a round trip.
    pub(crate) fn leaky_wait(&self, guard: &Guard) -> Option<Duration> {
        let waits = self.quotas().iter().filter_map(|it| match it.counted_by() {
            Algorithm::LeakyBucket { capacity } => {
                let interval = it.interval();
                let each = interval + guard.current() + self.parts.buffer;
                let late = (2 * guard.round_trip()).min(interval / 8);
                Some(each.saturating_mul(capacity) + late)
            }
            _ => None,
        });
        waits.min()
    }

    /// Returns true if departures under this policy can be returned under the other.
    pub(crate) fn counts_like(&self, other: &Self) -> bool {
        let mut pairs = self.counters.iter().zip(&other.counters);
        std::ptr::eq(self, other)
            || are_alike(&self.counters, &other.counters)
                && pairs.all(|(counter, other)| counter.grain() == other.grain())
    }

    /// This policy, with its logs stored as these counters store theirs; `None` if they count differently.
    pub(crate) fn stored_like(&self, counters: &[Counter]) -> Option<Self> {
        are_alike(&self.counters, counters).then(|| {
            let mut policy = self.clone();
            let pairs = policy.counters.iter_mut().zip(counters);
            pairs.for_each(|(counter, stored)| counter.store_like(stored));
            policy.number = next_number();
            policy
        })
    }
}

fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
