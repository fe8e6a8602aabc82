//! Costs that are known only after the response: [`Charge`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use smallvec::SmallVec;

use crate::acquire::{Cause, Error};
use crate::algorithm::Settlement;
use crate::cost::Cost;
use crate::dispatcher::{Handle, Place, Position};
use crate::key::Key;
use crate::permit::Permit;
use crate::queue::Turn;
use crate::quota::{CONCURRENT, REQUESTS, UnitNames};

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
/// debt: no request that costs this unit departs until the window has room again. Until then, a window holds more than the
/// limit by what was underestimated.
///
/// Use the [sliding window](crate::Algorithm::SlidingLog), which is the default: it takes back the whole difference. GCRA,
/// spacing and leaky buckets take back less if other requests have departed since, as more would break their bound. A fixed
/// window that begins with its first request may end later, if what that request has cost is lowered.
///
/// A correction is sent with the next call for its key, or a few milliseconds later. While the store is out, corrections
/// wait in a buffer: up to 1,024 for each of 100,000 keys. If the answer to a call is lost, a lower cost is not sent again, and
/// a higher one is: a lost answer can only make the limiter stricter.
///
/// The estimate stays charged if the process ends before it has sent the correction, if the buffer is full, if Redis refuses the
/// call, if new quotas count differently, or if the departure no longer counts, as the response took longer than the window. A
/// debt is dropped then, too, so a window may hold more than the limit by as much.
#[derive(Debug, Clone)]
pub struct Charge(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: Arc<Handle>,
    key: Key,
    turn: Turn,
    position: Position,
    /// A bit for each unit that was settled, or cannot be: a request in progress takes its places until it ends.
    settled: AtomicU8,
}

impl Permit {
    /// The charge, to correct it when the actual cost is known. The request departs as if the permit were dropped: if a quota
    /// limits how many requests are in progress, use [`into_parts`](Self::into_parts).
    pub fn into_charge(self) -> Charge {
        Charge::of(&self)
    }

    /// The charge, and the [place](Self::hold) of the request among those in progress.
    ///
    /// ```
    /// use tower_throttle::{Limiter, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder()
    ///     .quota(Quota::concurrent(1))
    ///     .quota(Quota::per_minute(100_000).unit("tokens"))
    ///     .build()?;
    ///
    /// let permit = limiter.acquire("api").cost_of("tokens", 1_200).await?;
    /// let (charge, place) = permit.into_parts();
    /// let used = place.run(async { 845 }).await?;
    /// charge.settle("tokens", used)?;
    /// assert_eq!(limiter.peek("api").await?.remaining_of("tokens"), Some(99_155));
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_parts(self) -> (Charge, Place) {
        (Charge::of(&self), self.hold())
    }
}

impl Charge {
    pub(crate) fn of(permit: &Permit) -> Self {
        let mut turn = permit.granted.turn;
        turn.recorded = turn.recorded.filter(|_| permit.is_counted());
        Self(Arc::new(Inner {
            handle: permit.handle.clone(),
            key: permit.key.clone(),
            turn,
            position: permit.granted.position,
            settled: AtomicU8::new(turn.counters.place().map_or(0, |unit| 1 << unit)),
        }))
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// The charge of the departure in this unit; `None` if no quota counts it, and for `concurrent-requests`, as a place is
    /// released instead.
    pub fn cost_of(&self, unit: &str) -> Option<u32> {
        let number = self.number_of(unit).ok()?;
        Some(self.0.turn.units.0[number])
    }

    /// Corrects what was charged in this unit to the actual cost.
    ///
    /// It never waits: the correction is sent in the background. It does nothing if the departure
    /// [is not counted](Permit::is_counted), or was granted by the share of [`Outage::Local`](crate::Outage::Local). Before a
    /// process ends, await [`Limiter::idle`](crate::Limiter::idle).
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidCost`](crate::ErrorKind::InvalidCost), and corrects nothing, if no quota counts the unit, if it is
    /// `concurrent-requests`, if it was settled before, or if the quotas count differently since the request departed.
    pub fn settle(&self, unit: &str, cost: u32) -> Result<(), Error> {
        self.settle_at(&[(self.number_of(unit)?, cost)])
    }

    /// Corrects what was charged in all units that the cost names. A cost in requests is ignored if no quota counts these.
    ///
    /// # Errors
    ///
    /// Fails like [`settle`](Self::settle), and then corrects nothing.
    pub fn settle_to(&self, cost: &Cost) -> Result<(), Error> {
        let counts = |unit: &str| unit != REQUESTS || self.units().contains(&unit);
        let costs = cost.each().filter(|(unit, _)| counts(unit));
        let costs: Result<Vec<_>, _> = costs
            .map(|(unit, cost)| Ok((self.number_of(unit)?, cost)))
            .collect();
        self.settle_at(&costs?)
    }

    /// Corrects what was charged to nothing, in all units that were not settled: nothing was sent.
    pub fn refund(&self) {
        let settled = self.0.settled.fetch_or(u8::MAX, Ordering::Relaxed);
        let units = (0..self.units().len()).filter(|unit| settled & (1 << unit) == 0);
        let nothing: Vec<_> = units.map(|unit| (unit, 0)).collect();
        // If the quotas count differently, there is nothing to correct.
        let _ = self.correct(&nothing);
    }

    fn settle_at(&self, costs: &[(usize, u32)]) -> Result<(), Error> {
        let bits = costs.iter().fold(0, |bits, (unit, _)| bits | 1 << unit);
        let relaxed = Ordering::Relaxed;
        let all_or_none = |settled| (settled & bits == 0).then_some(settled | bits);
        let settled = self.0.settled.fetch_update(relaxed, relaxed, all_or_none);
        if let Err(settled) = settled {
            let twice = costs.iter().find(|(unit, _)| settled & (1 << unit) != 0);
            let unit = twice.map_or("", |(unit, _)| self.units()[*unit]);
            return Err(self.error(format!("{unit} were settled before")));
        }
        self.correct(costs)
    }

    fn correct(&self, costs: &[(usize, u32)]) -> Result<(), Error> {
        let Inner {
            handle,
            key,
            turn,
            position,
            ..
        } = &*self.0;
        let Some(recorded) = turn.recorded else {
            return Ok(());
        };
        let settlements = costs.iter().map(|&(unit, cost)| Settlement {
            recorded: recorded.get(),
            unit,
            difference: i64::from(cost) - i64::from(turn.units.0[unit]),
        });
        let changes = settlements.filter(|it| it.difference != 0);
        let changes: SmallVec<[Settlement; 2]> = changes.collect();
        if changes.is_empty() || handle.settle(key, turn, *position, &changes) {
            return Ok(());
        }
        let units: Vec<_> = changes.iter().map(|it| self.units()[it.unit]).collect();
        let units = units.join(", ");
        Err(self.error(format!(
            "cannot settle {units}, as the quotas count differently since the request departed"
        )))
    }

    fn units(&self) -> UnitNames {
        self.0.turn.counters.units
    }

    fn number_of(&self, unit: &str) -> Result<usize, Error> {
        if unit == CONCURRENT {
            return Err(self.error("a place is released, and cannot be settled".to_owned()));
        }
        let number = self.units().iter().position(|name| *name == unit);
        number.ok_or_else(|| {
            let units = self.units().join(", ");
            self.error(format!("cannot settle {unit}, as the quotas count {units}"))
        })
    }

    fn error(&self, problem: String) -> Error {
        let policy = self.0.handle.policy();
        Error::new(Cause::InvalidCost(problem), policy, self.key())
    }
}
