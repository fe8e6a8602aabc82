//! A request that waits for its permit and for the service: [`Waiting`].

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Sleep, sleep_until};
use tower_service::Service;

use super::BoxError;
use crate::acquire::Acquire;
use crate::departure::Departure;
use crate::permit::Permit;

/// First the permit, then the service. Should the permit expire before the service is ready, its slot
/// goes back at once, and the request waits for the service before it asks for another.
///
/// Its parts stay in their places until they are called for, as moving them around takes longer than
/// the rest.
pub(super) struct Waiting<S, Q, R> {
    service: S,
    call: Option<(Q, R)>,
    /// `None` for a request that is exempt.
    acquire: Option<Acquire>,
    /// Gives itself back unless the request departs.
    permit: Option<Permit>,
    expires: Option<Pin<Box<Sleep>>>,
    /// Whether a permit has expired, and the service has not been ready since.
    expired: bool,
    /// Whether the service was ready once, and was let go for want of a permit.
    let_go: bool,
}

impl<S, Q, R> Waiting<S, Q, R> {
    #[inline]
    pub(super) fn new(service: S, request: Q, acquire: Option<Acquire>, report: R) -> Self {
        Self {
            service,
            call: Some((request, report)),
            acquire,
            permit: None,
            expires: None,
            expired: false,
            let_go: false,
        }
    }
}

impl<S, Q, R> Waiting<S, Q, R>
where
    S: Service<Q> + Clone,
    S::Error: Into<BoxError>,
{
    /// Calls the service, which is ready, once the request may depart.
    pub(super) fn call(&mut self) -> (S::Future, R) {
        let (request, report) = self.call.take().expect("a request is called once");
        (self.service.call(request), report)
    }

    /// Waits until the request may depart and the service is ready to take it, both at once.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Departure>, BoxError>> {
        if !self.expired {
            ready!(self.poll_permit(cx))?;
        }
        let Poll::Ready(is_ready) = self.service.poll_ready(cx) else {
            self.let_permit_expire(cx);
            return Poll::Pending;
        };
        is_ready.map_err(Into::into)?;
        self.expired = false;
        loop {
            let Some(acquire) = &mut self.acquire else {
                return Poll::Ready(Ok(None));
            };
            if let Some(permit) = &self.permit {
                if permit.is_valid() {
                    let departure = Departure::from(permit);
                    self.permit = None;
                    return Poll::Ready(Ok(Some(departure)));
                }
                self.expires = None;
            }
            if let Some(expired) = self.permit.take() {
                acquire.again(expired);
            }
            if self.poll_permit(cx)?.is_pending() {
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
    fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.permit.is_none()
            && let Some(acquire) = &mut self.acquire
        {
            self.permit = Some(ready!(Pin::new(acquire).poll(cx))?);
        }
        Poll::Ready(Ok(()))
    }

    /// Gives the permit back once it has expired.
    fn let_permit_expire(&mut self, cx: &mut Context<'_>) {
        let (Some(permit), Some(acquire)) = (&self.permit, &mut self.acquire) else {
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
                acquire.again(permit);
            }
        }
    }
}

impl<S, Q, R> Drop for Waiting<S, Q, R> {
    #[inline]
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.forfeit();
        }
    }
}
