//! Costs that are known only after the response: [`Charge`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use smallvec::SmallVec;

use crate::acquire::{Cause, Error};
use crate::algorithm::{Costs, Settlement};
use crate::cost::Cost;
use crate::dispatcher::Handle;
use crate::key::Key;
use crate::permit::Permit;
use crate::quota::UnitNames;

/// The charge of a departed request, to be corrected when its actual cost is known.
///
/// [`Permit::into_charge`] makes it, and the adapters put it into the extensions of responses to requests whose quotas count
/// something else than requests. It outlives the permit. Clones correct the same departure. Dropping it keeps the charge.
///
/// ```
/// use tower_throttle::{Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder()
///     .quota(Quota::per_minute(600))
///     .quota(Quota::per_minute(100_000).unit("tokens"))
///     .build()?;
///
/// let estimate = limiter.acquire("api").cost_of("tokens", 1_200);
/// let charge = estimate.await?.into_charge();
/// // The response says how many tokens it was.
/// charge.settle("tokens", 845)?;
/// assert_eq!(limiter.peek("api").await?.remaining_of("tokens"), Some(99_155));
/// # Ok(())
/// # }
/// ```
///
/// # How exact that is
///
/// If the actual cost is lower, the difference is available again at once, in all replicas. If it is higher, the difference is
/// debt: nothing departs until the window has room again. Until then, a window holds more than the limit by what was
/// underestimated.
///
/// Use the [sliding window](crate::Algorithm::SlidingLog), which is the default: it takes back the whole difference. GCRA,
/// spacing and leaky buckets take back less if other requests have departed since, as more would break their bound.
///
/// A correction is sent with the next call for its key, or a few milliseconds later. If its answer is lost, a lower cost is
/// not sent again, and a higher one is. So a failure can only make the limiter stricter. While the store is out, corrections
/// wait in a bounded buffer; what does not fit stays charged, as do the estimates of a process that dies.
#[derive(Debug, Clone)]
pub struct Charge(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: Arc<Handle>,
    key: Key,
    /// See [`Permit`].
    counters: u64,
    recorded: u64,
    units: UnitNames,
    costs: Costs,
    /// A bit for each unit that was settled.
    settled: AtomicU8,
}

impl Permit {
    /// The charge, to correct it when the actual cost is known. The request departs as if the permit were dropped.
    #[must_use]
    pub fn into_charge(self) -> Charge {
        Charge::of(&self)
    }
}

impl Charge {
    pub(crate) fn of(permit: &Permit) -> Self {
        let turn = &permit.granted.turn;
        Self(Arc::new(Inner {
            handle: permit.handle.clone(),
            key: permit.key.clone(),
            counters: permit.counters,
            recorded: if permit.is_counted { turn.recorded } else { 0 },
            units: permit.handle.load().policy.units(),
            costs: turn.units,
            settled: AtomicU8::new(0),
        }))
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// The charge in this unit; `None` if no quota counts it.
    #[must_use]
    pub fn cost_of(&self, unit: &str) -> Option<u32> {
        self.place(unit).map(|place| self.0.costs.0[place])
    }

    /// Corrects what was charged in this unit to the actual cost.
    ///
    /// It never waits: the correction is sent with the next call to the store. It does nothing if the departure
    /// [is not counted](Permit::is_counted).
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidCost`](crate::ErrorKind::InvalidCost), and corrects nothing, if no quota counts the unit, if it was
    /// settled before, or if the quotas count differently since the request departed.
    pub fn settle(&self, unit: &str, cost: u32) -> Result<(), Error> {
        let place = self.place(unit).ok_or_else(|| {
            let units = self.0.units.join(", ");
            self.error(format!("cannot settle {unit}, as the quotas count {units}"))
        })?;
        self.settle_at(&[(place, cost)])
    }

    /// Corrects what was charged in all units that the cost names, and ignores others.
    ///
    /// # Errors
    ///
    /// Fails like [`settle`](Self::settle), and then corrects nothing.
    pub fn settle_to(&self, cost: &Cost) -> Result<(), Error> {
        let known = cost
            .each()
            .filter_map(|(unit, cost)| Some((self.place(unit)?, cost)));
        self.settle_at(&known.collect::<Vec<_>>())
    }

    /// Corrects what was charged to nothing, in all units that were not settled: nothing was sent.
    pub fn refund(&self) {
        let left = self.0.settled.load(Ordering::Relaxed);
        let places = (0..self.0.units.len()).filter(|place| left & (1 << place) == 0);
        let nothing: Vec<_> = places.map(|place| (place, 0)).collect();
        // Another thread may settle it at the same time.
        let _ = self.settle_at(&nothing);
    }

    fn settle_at(&self, costs: &[(usize, u32)]) -> Result<(), Error> {
        let this = &*self.0;
        if this.counters != this.handle.load().counters {
            let units: Vec<_> = costs.iter().map(|(place, _)| this.units[*place]).collect();
            let units = units.join(", ");
            return Err(self.error(format!(
                "cannot settle {units}, as the quotas count differently since the request departed"
            )));
        }
        let bits = costs.iter().fold(0, |bits, (place, _)| bits | 1 << place);
        let relaxed = Ordering::Relaxed;
        let all_or_none = |settled| (settled & bits == 0).then_some(settled | bits);
        if let Err(settled) = this.settled.fetch_update(relaxed, relaxed, all_or_none) {
            let twice = costs.iter().find(|(place, _)| settled & (1 << place) != 0);
            let unit = twice.map_or("", |(place, _)| this.units[*place]);
            return Err(self.error(format!("{unit} were settled before")));
        }
        let settlements = costs.iter().map(|&(unit, cost)| Settlement {
            recorded: this.recorded,
            unit,
            difference: i64::from(cost) - i64::from(this.costs.0[unit]),
        });
        let changes = settlements.filter(|it| it.difference != 0 && this.recorded > 0);
        let changes: SmallVec<[Settlement; 2]> = changes.collect();
        if !changes.is_empty() {
            this.handle.settle(&this.key, &this.costs, &changes);
        }
        Ok(())
    }

    fn place(&self, unit: &str) -> Option<usize> {
        self.0.units.iter().position(|name| *name == unit)
    }

    fn error(&self, problem: String) -> Error {
        Error::new(Cause::InvalidCost(problem), self.0.handle.policy())
    }
}
