//! A request that waits for its permit and for the service: [`Waiting`].

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Sleep, sleep_until};
use tower_service::Service;

use super::future::Departed;
use crate::acquire::{Acquire, Error};

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
    pub(super) expires: Option<Pin<Box<Sleep>>>,
    /// Whether a permit has expired, and the service has not been ready since.
    pub(super) expired: bool,
    /// Whether the service was ready once, and was released because the request had no permit.
    pub(super) let_go: bool,
}

impl<S: Service<Q> + Clone, Q> Waiting<S, Q> {
    /// Waits until the request may depart and the service is ready to take it, both at once. Then it has
    /// to depart at once.
    pub(super) fn poll(
        &mut self,
        departed: &mut Option<Departed>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Stopped<S::Error>>> {
        if !self.expired {
            ready!(self.poll_permit(departed, cx))?;
        }
        let Poll::Ready(is_ready) = self.service.poll_ready(cx) else {
            self.let_permit_expire(departed, cx);
            return Poll::Pending;
        };
        is_ready.map_err(Stopped::Failed)?;
        self.expired = false;
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
                if !self.let_go || self.is_shared {
                    self.let_go = true;
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
        let at = permit.granted.turn.until;
        let expires = self
            .expires
            .get_or_insert_with(|| Box::pin(sleep_until(at)));
        if expires.as_mut().poll(cx).is_ready() {
            self.expired = true;
            self.acquire_again(departed);
        }
    }

    /// Gives back a permit that has expired, if there is one, and asks for another.
    fn acquire_again(&mut self, departed: &mut Option<Departed>) {
        self.expires = None;
        if let Some(acquire) = &mut self.acquire
            && let Some(Ok(expired)) = departed.take()
        {
            acquire.again(expired);
        }
    }
}
