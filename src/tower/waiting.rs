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
pub(super) struct Waiting<S, Q, R> {
    service: S,
    request: Q,
    report: R,
    /// `None` for a request that is exempt.
    acquire: Option<Acquire>,
    permit: Option<Unused>,
    /// Whether a permit has expired, and the service has not been ready since.
    expired: bool,
    /// Whether the service was ready once, and was let go for want of a permit.
    let_go: bool,
}

/// A permit that gives itself back unless it is taken.
struct Unused {
    permit: Option<Permit>,
    expires: Option<Pin<Box<Sleep>>>,
}

impl<S, Q, R> Waiting<S, Q, R> {
    pub(super) fn new(service: S, request: Q, acquire: Option<Acquire>, report: R) -> Self {
        Self {
            service,
            request,
            report,
            acquire,
            permit: None,
            expired: false,
            let_go: false,
        }
    }

    pub(super) fn into_parts(self) -> (S, Q, R) {
        (self.service, self.request, self.report)
    }
}

impl<S, Q, R> Waiting<S, Q, R>
where
    S: Service<Q> + Clone,
    S::Error: Into<BoxError>,
{
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
            match self.permit.take().and_then(Unused::take) {
                Some(permit) if permit.is_valid() => {
                    return Poll::Ready(Ok(Some(Departure::from(&permit))));
                }
                Some(permit) => acquire.again(permit),
                None => {}
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

    fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.permit.is_none()
            && let Some(acquire) = &mut self.acquire
        {
            let permit = ready!(Pin::new(acquire).poll(cx))?;
            self.permit = Some(Unused {
                permit: Some(permit),
                expires: None,
            });
        }
        Poll::Ready(Ok(()))
    }

    /// Gives the permit back once it has expired.
    fn let_permit_expire(&mut self, cx: &mut Context<'_>) {
        if let Some(held) = &mut self.permit
            && held.poll_expired(cx).is_ready()
            && let Some(permit) = self.permit.take().and_then(Unused::take)
            && let Some(acquire) = &mut self.acquire
        {
            acquire.again(permit);
            self.expired = true;
        }
    }
}

impl Unused {
    fn take(mut self) -> Option<Permit> {
        self.permit.take()
    }

    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(permit) = &self.permit else {
            return Poll::Ready(());
        };
        let at = permit.expires();
        let expires = self
            .expires
            .get_or_insert_with(|| Box::pin(sleep_until(at)));
        expires.as_mut().poll(cx)
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.forfeit();
        }
    }
}
