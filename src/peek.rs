//! The state of a key, without recording anything: [`Peek`] and [`Snapshot`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::acquire::{Cause, Error, check};
use crate::dispatcher::Handle;
use crate::error::StoreError;
use crate::key::Key;
use crate::queue::Standing;
use crate::store::{Answered, Reply};

/// Looks at a key; see [`Limiter::peek`](crate::Limiter::peek).
///
/// Default: a cost of 1.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Peek {
    handle: Arc<Handle>,
    key: Key,
    cost: u32,
    reply: Option<Reply<Answered>>,
}

impl Peek {
    pub(crate) fn new(handle: Arc<Handle>, key: Key) -> Self {
        Self {
            handle,
            key,
            cost: 1,
            reply: None,
        }
    }

    /// Sets the cost of the request whose [delay](Snapshot::delay) is asked for.
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }
}

impl Future for Peek {
    type Output = Result<Snapshot, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let policy = this.handle.policy();
        if let Err(cause) = check(&policy, &this.key, this.cost) {
            return Poll::Ready(Err(Error::new(cause, policy)));
        }
        let look = || this.handle.look(&this.key, this.cost);
        let reply = this.reply.get_or_insert_with(look);
        let answer = ready!(Pin::new(reply).poll(cx));
        let snapshot = answer.and_then(snapshot);
        Poll::Ready(snapshot.map_err(|error| Error::new(Cause::Store(error), policy)))
    }
}

fn snapshot(answered: Answered) -> Result<Snapshot, StoreError> {
    let now = answered.now;
    let none = || StoreError::new("the store did not answer what was asked").no_outage();
    let taken = answered
        .answers
        .into_iter()
        .next_back()
        .ok_or_else(none)??;
    let from_now = |at: u64| Duration::from_micros(at.saturating_sub(now));
    Ok(Snapshot {
        delay: taken
            .expected
            .first()
            .map_or(Duration::ZERO, |&at| from_now(at)),
        remaining: taken.remaining,
        reset: from_now(taken.reset),
    })
}

impl fmt::Debug for Peek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peek")
            .field("key", &self.key)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

/// The state of a key at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    delay: Duration,
    remaining: u32,
    reset: Duration,
}

impl Snapshot {
    pub(crate) fn new(standing: &Standing, now: Instant) -> Self {
        Self {
            delay: until(standing.last, now),
            remaining: standing.remaining,
            reset: until(standing.reset, now),
        }
    }

    /// How long the request would have to wait, if no other came before it. Zero if it could depart at once.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// How many requests of cost 1 could depart now.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// How long until all units of the quotas are available again.
    #[must_use]
    pub fn reset(&self) -> Duration {
        self.reset
    }
}

/// The time from now until then, in whole microseconds, rounded up.
pub(crate) fn until(at: Option<Instant>, now: Instant) -> Duration {
    let left = at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
    Duration::from_micros(left.as_nanos().div_ceil(1_000) as u64)
}
