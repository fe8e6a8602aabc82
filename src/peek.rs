//! The state of a key, without recording anything: [`Peek`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::acquire::{Cause, Error, check};
use crate::cost::Cost;
use crate::dispatcher::Handle;
use crate::error::StoreError;
use crate::key::Key;
use crate::policy::Policy;
use crate::priority::{Priority, Rank, Share};
use crate::snapshot::Snapshot;
use crate::store::{Answered, Reply};

/// Looks at a key; see [`Limiter::peek`](crate::Limiter::peek).
///
/// Default: a cost of 1 in each unit whose quota has no default cost.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Peek {
    handle: Arc<Handle>,
    key: Key,
    cost: Cost,
    rank: Rank,
    reply: Option<Reply<Answered>>,
}

impl Peek {
    pub(crate) fn new(handle: Arc<Handle>, key: Key) -> Self {
        Self {
            handle,
            key,
            cost: Cost::default(),
            rank: Rank::default(),
            reply: None,
        }
    }

    /// Sets the cost of the request whose [delay](Snapshot::delay) is asked for, by default 1 in each unit whose quota has no default cost.
    pub fn cost(mut self, cost: impl Into<Cost>) -> Self {
        self.cost = cost.into();
        self
    }

    /// Sets that cost in one unit.
    pub fn cost_of(mut self, unit: &'static str, cost: u32) -> Self {
        self.cost.set(unit, cost);
        self
    }

    /// Sets the priority of that request: those of lower levels are not ahead of it. Default: [`Priority::Normal`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.rank.priority = priority;
        self
    }

    /// Sets the [`Share`] of that request. Default: none.
    pub fn share(mut self, name: impl AsRef<str>, weight: u32) -> Self {
        self.rank.share = Some(Share::new(name, weight));
        self
    }
}

impl Future for Peek {
    type Output = Result<Snapshot, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let policy = this.handle.policy();
        if let Some(problem) = this.rank.share.as_ref().and_then(Share::problem) {
            return Poll::Ready(Err(Error::new(Cause::InvalidShare(problem), policy)));
        }
        let cost = match check(&policy, &this.key, &this.cost, Some(1)) {
            Ok(cost) => cost,
            Err(cause) => return Poll::Ready(Err(Error::new(cause, policy))),
        };
        let look = || this.handle.look(&this.key, cost, &this.rank);
        let reply = this.reply.get_or_insert_with(look);
        let answer = ready!(Pin::new(reply).poll(cx));
        let snapshot = answer.and_then(|answered| snapshot(answered, &policy));
        Poll::Ready(snapshot.map_err(|error| Error::new(Cause::Store(error), policy)))
    }
}

fn snapshot(answered: Answered, policy: &Policy) -> Result<Snapshot, StoreError> {
    let now = answered.now;
    let none = || StoreError::new("the store did not answer what was asked").no_outage();
    let last = answered.answers.into_iter().next_back();
    Ok(Snapshot::of(&last.ok_or_else(none)??, policy.units(), now))
}
