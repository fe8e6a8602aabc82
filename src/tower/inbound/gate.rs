//! What asks the limiter on behalf of a client: [`Gate`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::refused::Refused;
use crate::acquire::{Acquire, TryAcquire};
use crate::epoch::Epochs;
use crate::error::Error;
use crate::key::Key;
use crate::permit::{Decision, Permit};
use crate::policy::Policy;
use crate::tower::waiting::Ask;

/// Asks for a permit, at once or with a bounded wait.
pub(super) struct Gate {
    epochs: Epochs,
    /// As it was when the request came, for whom it refuses.
    policy: Arc<Policy>,
    key: Key,
    cost: u32,
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
    /// For a request of this key and cost.
    pub(super) fn new(
        (epochs, key, cost): (Epochs, Key, u32),
        max_wait: Duration,
        is_forgetful: bool,
    ) -> Self {
        let asks = if max_wait.is_zero() {
            at_once(&epochs, &key, cost, is_forgetful)
        } else {
            let acquire = Acquire::new(epochs.clone(), key.clone()).cost(cost);
            let acquire = acquire.keep_place().max_wait(max_wait);
            Asks::Waits(acquire.forgetful(is_forgetful))
        };
        Self {
            policy: epochs.clone().current().policy.clone(),
            epochs,
            key,
            cost,
            is_forgetful,
            full: None,
            asks,
        }
    }

    fn at_once(&self) -> Asks {
        at_once(&self.epochs, &self.key, self.cost, self.is_forgetful)
    }
}

fn at_once(epochs: &Epochs, key: &Key, cost: u32, is_forgetful: bool) -> Asks {
    let decision = TryAcquire::new(epochs.clone(), key.clone()).cost(cost);
    Asks::AtOnce(decision.forgetful(is_forgetful))
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
                        self.asks = self.at_once();
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
                self.asks = self.at_once();
            }
            Asks::Waits(permit) => permit.again(expired),
        }
    }
}
