//! The state of a key, without recording anything: [`Peek`] and [`Snapshot`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::acquire::{Cause, Error, check};
use crate::dispatcher::Handle;
use crate::error::StoreError;
use crate::key::Key;
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
        let mut reply = match self.reply.take() {
            Some(reply) => reply,
            None => {
                check(&self.handle.policy(), &self.key, self.cost)?;
                self.handle.look(&self.key, self.cost)
            }
        };
        let Poll::Ready(answer) = Pin::new(&mut reply).poll(cx) else {
            self.reply = Some(reply);
            return Poll::Pending;
        };
        Poll::Ready(
            answer
                .and_then(snapshot)
                .map_err(|error| Cause::Store(error).into()),
        )
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
    /// How long a request made now would have to wait, if no other came before it. Zero if it could depart at once.
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
