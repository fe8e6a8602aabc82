//! A request that waits for its permit and for the service: [`Waiting`].

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tower_service::Service;

use super::future::Departed;
use crate::acquire::{Acquire, Error};
use crate::alarm::Alarm;

/// Why a request does not depart.
#[derive(Debug)]
pub(super) enum Stopped<E> {
    /// There is no permit for it.
    Refused(Error),
    /// The service has failed.
    Failed(E),
}

/// First the permit, then the service. If the permit expires before the service is ready, the request gives it back at
/// once, and asks again when the service is ready.
///
/// Its parts stay in their places until they are used, as moving them takes longer than the rest.
#[derive(Debug)]
pub(super) struct Waiting<S, Q> {
    pub(super) service: S,
    /// Whether the clones of the service are one service.
    pub(super) is_shared: bool,
    /// Until the service is called.
    pub(super) request: Option<Q>,
    /// `None` for a request that is exempt, or that passes although it was refused.
    pub(super) acquire: Option<Acquire>,
    pub(super) expiry: Alarm,
    /// A permit has expired, and the service was not ready since. Once it is, the request asks for another permit.
    pub(super) has_expired: bool,
    /// The service was ready before the permit, and the request has released it for others.
    pub(super) has_released: bool,
}

impl<S: Service<Q> + Clone, Q> Waiting<S, Q> {
    /// Waits until the request may depart and the service is ready to take it, both at once. Then it has
    /// to depart at once.
    pub(super) fn poll(
        &mut self,
        departed: &mut Option<Departed>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Stopped<S::Error>>> {
        if !self.has_expired {
            ready!(self.poll_permit(departed, cx))?;
        }
        let Poll::Ready(is_ready) = self.service.poll_ready(cx) else {
            self.let_permit_expire(departed, cx);
            return Poll::Pending;
        };
        is_ready.map_err(Stopped::Failed)?;
        self.has_expired = false;
        while self.acquire.is_some() {
            if let Some(Ok(permit)) = departed
                && permit.is_valid()
            {
                return Poll::Ready(Ok(()));
            }
            self.acquire_again(departed);
            if self.poll_permit(departed, cx)?.is_pending() {
                // The request releases the service while it waits. A service that always takes longer to get ready
                // than a permit is valid would never be called, so the request releases it only once. A shared service
                // stays ready by itself, and others need it.
                if !self.has_released || self.is_shared {
                    self.has_released = true;
                    self.service = self.service.clone();
                }
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn poll_permit(
        &mut self,
        departed: &mut Option<Departed>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Stopped<S::Error>>> {
        if departed.is_none()
            && let Some(acquire) = &mut self.acquire
        {
            match ready!(Pin::new(acquire).poll(cx)) {
                Ok(permit) => *departed = Some(Ok(permit)),
                Err(error) => return Poll::Ready(Err(Stopped::Refused(error))),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Gives the permit back once it has expired.
    fn let_permit_expire(&mut self, departed: &mut Option<Departed>, cx: &mut Context<'_>) {
        let Some(Ok(permit)) = departed else {
            return;
        };
        if self.expiry.poll(permit.granted.turn.until, cx).is_ready() {
            self.has_expired = true;
            self.acquire_again(departed);
        }
    }

    /// Gives back a permit that has expired, if there is one, and asks for another.
    fn acquire_again(&mut self, departed: &mut Option<Departed>) {
        if let Some(acquire) = &mut self.acquire
            && let Some(Ok(expired)) = departed.take()
        {
            acquire.again(expired);
        }
    }
}
