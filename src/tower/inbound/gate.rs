//! What asks the limiter on behalf of a client: [`Gate`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::refused::Refused;
use crate::acquire::{Acquire, TryAcquire};
use crate::error::Error;
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
    /// Whether what is refused may be had again before long, as what is granted may be given back.
    is_forgetful: bool,
    /// Why it does not wait, though it would.
    full: Option<Error>,
    asks: Asks,
}

enum Asks {
    AtOnce(TryAcquire),
    Waits(Acquire),
}

impl Gate {
    pub(super) fn new(limiter: &Limiter, key: Key, max_wait: Duration, is_forgetful: bool) -> Self {
        let asks = if max_wait.is_zero() {
            at_once(limiter, &key, is_forgetful)
        } else {
            let acquire = limiter.acquire(&key).keep_place().max_wait(max_wait);
            Asks::Waits(acquire.forgetful(is_forgetful))
        };
        Self {
            limiter: limiter.clone(),
            policy: limiter.policy(),
            key,
            is_forgetful,
            full: None,
            asks,
        }
    }
}

fn at_once(limiter: &Limiter, key: &Key, is_forgetful: bool) -> Asks {
    Asks::AtOnce(limiter.try_acquire(key).forgetful(is_forgetful))
}

impl Ask for Gate {
    type Refusal = Refused;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Refused>> {
        let decision = loop {
            match &mut self.asks {
                Asks::AtOnce(decision) => break ready!(Pin::new(decision).poll(cx)),
                Asks::Waits(permit) => match ready!(Pin::new(permit).poll(cx)) {
                    // How long it would take is known to the store, or was told to another.
                    Err(error) if error.is_line_full() => {
                        self.full = Some(error);
                        self.asks = at_once(&self.limiter, &self.key, self.is_forgetful);
                    }
                    decision => break decision.map(Decision::Granted),
                },
            }
        };
        let refused_by = || (self.key.clone(), self.policy.clone());
        Poll::Ready(match decision {
            Ok(Decision::Granted(permit)) => Ok(permit),
            Ok(Decision::Limited(limited)) => {
                let (key, policy) = refused_by();
                Err(match self.full.take() {
                    Some(full) => Refused::full(key, policy, full, limited),
                    None => Refused::limited(key, policy, limited),
                })
            }
            Err(error) => {
                let (key, policy) = refused_by();
                Err(Refused::failed(key, policy, error))
            }
        })
    }

    /// Who does not wait has no place in the line to keep, so it asks as if it came now.
    ///
    /// To spend a permit that has expired would be simpler, and be answered sooner. But its slot may be
    /// another's by then, and the service would be called more often than the limit allows.
    fn again(&mut self, expired: Permit) {
        match &mut self.asks {
            Asks::AtOnce(_) => {
                expired.forfeit();
                self.asks = at_once(&self.limiter, &self.key, self.is_forgetful);
            }
            Asks::Waits(permit) => permit.again(expired),
        }
    }
}
