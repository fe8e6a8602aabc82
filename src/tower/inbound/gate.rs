//! Asks the limiter for a client's request: [`Gate`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::refused::Refused;
use crate::acquire::{Acquire, Cause, Error, TryAcquire};
use crate::dispatcher::Handle;
use crate::key::Key;
use crate::permit::{Decision, Permit};
use crate::policy::Policy;
use crate::tower::waiting::Ask;

/// Asks for a permit, at once or with a bounded wait.
pub(super) struct Gate {
    handle: Arc<Handle>,
    /// The policy when the request arrived.
    policy: Arc<Policy>,
    key: Key,
    cost: u32,
    /// The queue was full.
    full: Option<Error>,
    asks: Asks,
}

enum Asks {
    AtOnce(TryAcquire),
    Waits(Acquire),
}

impl Gate {
    /// For a request of this key and cost.
    pub(super) fn new(handle: Arc<Handle>, key: Key, cost: u32, max_wait: Duration) -> Self {
        Self {
            asks: match max_wait.is_zero() {
                true => Asks::at_once(&handle, &key, cost),
                false => {
                    let acquire = Acquire::new(handle.clone(), key.clone()).cost(cost);
                    Asks::Waits(acquire.max_wait(max_wait))
                }
            },
            policy: handle.policy(),
            handle,
            key,
            cost,
            full: None,
        }
    }
}

impl Asks {
    fn at_once(handle: &Arc<Handle>, key: &Key, cost: u32) -> Self {
        Self::AtOnce(TryAcquire::new(handle.clone(), key.clone()).cost(cost))
    }
}

impl Ask for Gate {
    type Refusal = Refused;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Refused>> {
        let decision = loop {
            match &mut self.asks {
                Asks::AtOnce(decision) => break ready!(Pin::new(decision).poll(cx)),
                Asks::Waits(permit) => match ready!(Pin::new(permit).poll(cx)) {
                    // The error has no delay.
                    Err(error) if error.is_queue_full() => {
                        self.full = Some(error);
                        self.asks = Asks::at_once(&self.handle, &self.key, self.cost);
                    }
                    decision => break decision.map(Decision::Granted),
                },
            }
        };
        let (error, limited) = match decision {
            Ok(Decision::Granted(permit)) => return Poll::Ready(Ok(permit)),
            Ok(Decision::Limited(limited)) => {
                let full = self.full.take();
                let waited = Duration::ZERO;
                let too_long = || Cause::TooLong { waited, limited }.into();
                (full.unwrap_or_else(too_long), Some(limited))
            }
            Err(error) => {
                let limited = error.limited().copied();
                (error, limited)
            }
        };
        let (key, policy) = (self.key.clone(), self.policy.clone());
        Poll::Ready(Err(Refused::new(key, policy, error, limited)))
    }

    /// A request that does not wait has no place in the queue, so it asks as if it arrived now. It must not use the expired
    /// permit, as another request may depart in its place.
    fn again(&mut self, expired: Permit) {
        match &mut self.asks {
            Asks::AtOnce(_) => {
                expired.forfeit();
                self.asks = Asks::at_once(&self.handle, &self.key, self.cost);
            }
            Asks::Waits(permit) => permit.again(expired),
        }
    }
}
