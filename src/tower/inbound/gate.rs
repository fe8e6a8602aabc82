//! What asks the limiter on behalf of a client: [`Gate`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::refused::Refused;
use crate::acquire::{Acquire, TryAcquire};
use crate::key::Key;
use crate::limiter::Limiter;
use crate::permit::{Decision, Permit};
use crate::policy::Policy;
use crate::tower::waiting::Ask;

/// Asks for a permit, at once or with a bounded wait.
pub(super) struct Gate {
    limiter: Limiter,
    /// As it was when the request came, for whom it refuses.
    policy: Arc<Policy>,
    key: Key,
    max_wait: Duration,
    asks: Asks,
}

enum Asks {
    AtOnce(TryAcquire),
    Waits(Acquire),
}

impl Gate {
    pub(super) fn new(limiter: &Limiter, key: Key, max_wait: Duration) -> Self {
        let asks = if max_wait.is_zero() {
            Asks::AtOnce(limiter.try_acquire(&key))
        } else {
            let acquire = limiter.acquire(&key).keep_place();
            Asks::Waits(acquire.max_wait(max_wait))
        };
        Self {
            limiter: limiter.clone(),
            policy: limiter.policy(),
            key,
            max_wait,
            asks,
        }
    }
}

impl Ask for Gate {
    type Refusal = Refused;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Refused>> {
        let decision = match &mut self.asks {
            Asks::AtOnce(decision) => ready!(Pin::new(decision).poll(cx)),
            Asks::Waits(permit) => ready!(Pin::new(permit).poll(cx)).map(Decision::Granted),
        };
        let refused_by = || (self.key.clone(), self.policy.clone());
        Poll::Ready(match decision {
            Ok(Decision::Granted(permit)) => Ok(permit),
            Ok(Decision::Limited(limited)) => {
                let (key, policy) = refused_by();
                Err(Refused::limited(key, policy, limited))
            }
            Err(error) => {
                let (key, policy) = refused_by();
                Err(Refused::failed(key, policy, error, self.max_wait))
            }
        })
    }

    /// Who does not wait has no place in the line to keep, so it asks as if it came now.
    ///
    /// To spend a permit that has expired would be simpler, and be answered sooner. But its slot may be
    /// another's by then, and the service would be called more often than the limit allows.
    fn again(&mut self, expired: Permit) {
        match &mut self.asks {
            Asks::AtOnce(decision) => {
                expired.forfeit();
                *decision = self.limiter.try_acquire(&self.key);
            }
            Asks::Waits(permit) => permit.again(expired),
        }
    }
}
