//! A request that waits for its permit and for the service: [`Waiting`].

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Sleep, sleep_until};
use tower_service::Service;

use crate::acquire::{Acquire, Error};
use crate::permit::Permit;

/// Asks for the permit of one request.
pub(super) trait Ask {
    /// Why there is none.
    type Refusal;

    /// The permit, once it is there.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Self::Refusal>>;

    /// Gives back a permit that has expired, and asks for another.
    fn again(&mut self, expired: Permit);
}

impl Ask for Acquire {
    type Refusal = Error;

    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Error>> {
        Pin::new(self).poll(cx)
    }

    fn again(&mut self, expired: Permit) {
        Self::again(self, expired);
    }
}

/// Why a request does not depart.
pub(super) enum Stopped<R, E> {
    /// There is no permit for it.
    Refused(R),
    /// The service has failed.
    Failed(E),
}

/// Whether a request departs, once that is known.
pub(super) type Departs<A, S, Q> =
    Result<(), Stopped<<A as Ask>::Refusal, <S as Service<Q>>::Error>>;

/// First the permit, then the service. If the permit expires before the service is ready, the request gives it back at
/// once, and asks again when the service is ready.
///
/// Its parts stay in their places until they are used, as moving them takes longer than the rest.
pub(super) struct Waiting<S, Q, A = Acquire> {
    service: S,
    /// Until the service is called.
    request: Option<Q>,
    /// `None` for a request that is exempt.
    ask: Option<A>,
    /// Gives itself back unless the request departs.
    permit: Option<Permit>,
    expires: Option<Pin<Box<Sleep>>>,
    /// Whether a permit has expired, and the service has not been ready since.
    expired: bool,
    /// Whether the service was ready once, and was let go for want of a permit.
    let_go: bool,
}

impl<S, Q, A> Waiting<S, Q, A> {
    #[inline]
    pub(super) fn new(service: S, request: Q, ask: Option<A>) -> Self {
        Self {
            service,
            request: Some(request),
            ask,
            permit: None,
            expires: None,
            expired: false,
            let_go: false,
        }
    }

    /// The permit of a request that may depart: it departs by it, whatever becomes of the permit.
    #[inline]
    pub(super) fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// Lets the request depart without a permit, once the service is ready.
    pub(super) fn exempt(&mut self) {
        self.ask = None;
    }

    /// The request, until the service is called.
    pub(super) fn request_mut(&mut self) -> Option<&mut Q> {
        self.request.as_mut()
    }
}

impl<S, Q, A> Waiting<S, Q, A>
where
    S: Service<Q> + Clone,
    A: Ask,
{
    /// Calls the service, which is ready, once the request may depart.
    pub(super) fn call(&mut self) -> S::Future {
        let request = self.request.take().expect("a request is called once");
        self.service.call(request)
    }

    /// Waits until the request may depart and the service is ready to take it, both at once. Then it has
    /// to depart at once.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Departs<A, S, Q>> {
        if !self.expired {
            ready!(self.poll_permit(cx)).map_err(Stopped::Refused)?;
        }
        let Poll::Ready(is_ready) = self.service.poll_ready(cx) else {
            self.let_permit_expire(cx);
            return Poll::Pending;
        };
        is_ready.map_err(Stopped::Failed)?;
        self.expired = false;
        while self.ask.is_some() {
            if self.permit.as_ref().is_some_and(Permit::is_valid) {
                return Poll::Ready(Ok(()));
            }
            self.ask_again();
            if self.poll_permit(cx).map_err(Stopped::Refused)?.is_pending() {
                // What the service has set aside for this call is not kept while the request waits.
                // But if it always took longer than a permit is valid, the request would never
                // depart; so it is let go only once.
                if !self.let_go {
                    self.let_go = true;
                    self.service = self.service.clone();
                }
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), A::Refusal>> {
        if self.permit.is_none()
            && let Some(ask) = &mut self.ask
        {
            self.permit = Some(ready!(ask.poll(cx))?);
        }
        Poll::Ready(Ok(()))
    }

    /// Gives the permit back once it has expired.
    fn let_permit_expire(&mut self, cx: &mut Context<'_>) {
        let Some(permit) = &self.permit else {
            return;
        };
        let at = permit.granted.turn.until;
        let expires = self
            .expires
            .get_or_insert_with(|| Box::pin(sleep_until(at)));
        if expires.as_mut().poll(cx).is_ready() {
            self.expired = true;
            self.ask_again();
        }
    }

    /// Gives back a permit that has expired, if there is one, and asks for another.
    fn ask_again(&mut self) {
        self.expires = None;
        if let (Some(expired), Some(ask)) = (self.permit.take(), &mut self.ask) {
            ask.again(expired);
        }
    }
}

impl<S, Q, A> Drop for Waiting<S, Q, A> {
    #[inline]
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.forfeit();
        }
    }
}
