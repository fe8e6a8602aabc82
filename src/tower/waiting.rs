//! A request that waits for its permit and for the service: [`Waiting`].

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Sleep, sleep_until};
use tower_service::Service;

use crate::acquire::Acquire;
use crate::acquire::Error;
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
pub(super) struct Waiting<S, Q, R, A = Acquire> {
    service: S,
    call: Option<(Q, R)>,
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

impl<S, Q, R, A> Waiting<S, Q, R, A> {
    #[inline]
    pub(super) fn new(service: S, request: Q, ask: Option<A>, report: R) -> Self {
        Self {
            service,
            call: Some((request, report)),
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
        self.call.as_mut().map(|(request, _)| request)
    }
}

impl<S, Q, R, A> Waiting<S, Q, R, A>
where
    S: Service<Q> + Clone,
    A: Ask,
{
    /// Calls the service, which is ready, once the request may depart.
    pub(super) fn call(&mut self) -> (S::Future, R) {
        let (request, report) = self.call.take().expect("a request is called once");
        (self.service.call(request), report)
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
        loop {
            let Some(ask) = &mut self.ask else {
                return Poll::Ready(Ok(()));
            };
            if let Some(permit) = &self.permit {
                if permit.is_valid() {
                    return Poll::Ready(Ok(()));
                }
                self.expires = None;
            }
            if let Some(expired) = self.permit.take() {
                ask.again(expired);
            }
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
        let (Some(permit), Some(ask)) = (&self.permit, &mut self.ask) else {
            return;
        };
        let at = permit.expires();
        let expires = self
            .expires
            .get_or_insert_with(|| Box::pin(sleep_until(at)));
        if expires.as_mut().poll(cx).is_ready() {
            self.expires = None;
            self.expired = true;
            if let Some(permit) = self.permit.take() {
                ask.again(permit);
            }
        }
    }
}

impl<S, Q, R, A> Drop for Waiting<S, Q, R, A> {
    #[inline]
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.forfeit();
        }
    }
}
