//! The places of requests in progress: [`Place`].

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::Dispatcher;
use super::handle::Current;
use super::key_queue::KeyQueue;
use crate::alarm::Alarm;
use crate::algorithm::Mode;
use crate::key::Key;
use crate::policy::{Lost, Policy};
use crate::queue::Turn;

/// Releases of one key share a call if they follow within so long.
const GATHER: Duration = Duration::from_millis(1);

/// The place of a request among those in progress; made by [`Permit::hold`](crate::Permit::hold). It is released when it is
/// dropped.
///
/// ```
/// use tower_throttle::{Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().quota(Quota::concurrent(1)).build()?;
/// let place = limiter.acquire("printer").await?.hold();
/// assert!(!limiter.try_acquire("printer").await?.is_granted());
/// drop(place);
/// assert!(limiter.try_acquire("printer").await?.is_granted());
/// # Ok(())
/// # }
/// ```
///
/// A process renews the lease of its places as long as it holds them, on a tokio runtime. If it dies, other processes get the
/// places when the [lease](crate::Quota::lease) ends. If it cannot renew the lease, the place [is lost](Self::is_lost), and
/// [`Lost`](crate::Lost) says what happens then.
#[derive(Debug, Default)]
#[must_use = "the place is released when it is dropped"]
pub struct Place(pub(super) Option<Box<Held>>);

impl Place {
    /// False if no quota limits how many requests are in progress, or if the request does not count.
    pub fn is_held(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the lease has ended, so that the store may have given the place to another request. It stays so, although the
    /// process takes the place again when the store is back.
    pub fn is_lost(&self) -> bool {
        let held = self.0.as_ref();
        held.is_some_and(|held| held.is_leased && held.lease_end().is_none())
    }

    /// Has its lease renewed on this runtime.
    pub(crate) fn ensure_task(&self) {
        let dispatchers = self.0.iter().map(|held| &held.queue.handle.dispatcher);
        dispatchers.for_each(Dispatcher::ensure_task);
    }

    /// Ready once the work has to be dropped, with its policy and key.
    pub(crate) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<(Arc<Policy>, Key)> {
        let aborts =
            |it: &&mut Box<Held>| it.is_leased && it.current.policy.parts.lost == Lost::Abort;
        let Some(held) = self.0.as_mut().filter(aborts) else {
            return Poll::Pending;
        };
        held.queue.handle.dispatcher.ensure_task();
        while let Some(end) = held.lease_end() {
            ready!(held.timer.poll(end, cx));
        }
        Poll::Ready((held.current.policy.clone(), held.queue.key.clone()))
    }
}

/// The units that a request in progress holds. They are released when it is dropped.
pub(crate) struct Held {
    queue: Arc<KeyQueue>,
    /// The policy under which the request departed.
    current: Arc<Current>,
    units: u32,
    /// How often the lease of the queue had ended before.
    losses: u64,
    /// The store keeps the place. Those of the fallback store have no lease.
    is_leased: bool,
    timer: Alarm,
}

impl Held {
    /// A request departs in this turn.
    pub(super) fn new(queue: &Arc<KeyQueue>, turn: &Turn) -> Self {
        let current = queue.handle.current();
        current.telemetry.places(f64::from(turn.places()));
        Self {
            queue: queue.clone(),
            units: turn.places(),
            losses: queue.lock().losses(),
            is_leased: turn.is_counted(),
            current,
            timer: Alarm::default(),
        }
    }

    /// The end of the lease, which is renewed. `None` if it has ended.
    fn lease_end(&self) -> Option<Instant> {
        self.queue.lock().lease_end(self.losses, Instant::now())
    }

    /// The request is not sent: its turn goes to the next one.
    pub(super) fn forfeit(mut self, turn: Turn) {
        let units = self.end();
        let now = Instant::now();
        self.queue.update(|queue| {
            queue.subtract_held(units);
            queue.reassign(Mode::Wait, turn, now);
        });
    }

    fn end(&mut self) -> u32 {
        let units = std::mem::take(&mut self.units);
        self.current.telemetry.places(-f64::from(units));
        units
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.units == 0 {
            return;
        }
        let units = self.end();
        let gather = self.queue.handle.dispatcher.gather(GATHER);
        self.queue
            .update(|queue| queue.release_places(units, Instant::now(), gather));
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("units", &self.units)
            .finish_non_exhaustive()
    }
}
