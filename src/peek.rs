//! How a key stands, without spending anything: [`Peek`] and [`Snapshot`].

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::acquire::check;
use crate::epoch::Epochs;
use crate::error::Error;
use crate::key::Key;
use crate::store::{Ask, Outcome, Reply, Reserve, Reserved, StoreError};

/// Looks at how a key stands; see [`Limiter::peek`](crate::Limiter::peek).
///
/// Default: a cost of 1.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Peek {
    epochs: Epochs,
    key: Key,
    cost: u32,
    reply: Option<Reply<Reserved>>,
}

impl Peek {
    pub(crate) fn new(epochs: Epochs, key: Key) -> Self {
        Self {
            epochs,
            key,
            cost: 1,
            reply: None,
        }
    }

    /// Sets what the request would cost whose [delay](Snapshot::delay) is told.
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    fn ask(&self) -> Result<Reply<Reserved>, Error> {
        let mut epoch = self.epochs.clone().current();
        check(&epoch.policy, &self.key, self.cost)?;
        if let Some(error) = epoch.outage(&self.key) {
            let stand_in = epoch.stand_in_for(self.cost);
            epoch = stand_in.ok_or_else(|| Error::store(error))?;
        }
        let ask = Ask {
            count: 1,
            cost: self.cost,
            max_wait: 0,
        };
        Ok(epoch.store.peek(&Reserve {
            guard: epoch.guard.current(),
            least_guard: epoch.guard.least(),
            round_trip: epoch.guard.round_trip(),
            asks: &[ask],
            ..Reserve::new(&self.key, &epoch.policy)
        }))
    }
}

impl Future for Peek {
    type Output = Result<Snapshot, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let mut reply = match this.reply.take() {
            Some(reply) => reply,
            None => this.ask()?,
        };
        let Poll::Ready(answer) = Pin::new(&mut reply).poll(cx) else {
            this.reply = Some(reply);
            return Poll::Pending;
        };
        Poll::Ready(answer.and_then(snapshot).map_err(Error::store))
    }
}

fn snapshot(answer: Reserved) -> Result<Snapshot, StoreError> {
    match answer.outcomes[..] {
        [Outcome::Refused { wait }] => Ok(Snapshot {
            delay: Duration::from_micros(wait),
            remaining: answer.remaining,
            reset: answer.reset,
        }),
        _ => Err(StoreError::new("the store has not answered what was asked")),
    }
}

impl fmt::Debug for Peek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peek")
            .field("key", &self.key)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

/// How a key stands at one moment, as the store knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    delay: Duration,
    remaining: u32,
    reset: Duration,
}

impl Snapshot {
    /// How long a request made now would have to wait, if no other comes before it; to the
    /// microsecond. Zero if it could depart at once.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// How many requests of cost 1 could depart now.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// How long until as many requests may depart at once as the quotas allow.
    #[must_use]
    pub fn reset(&self) -> Duration {
        self.reset
    }
}
