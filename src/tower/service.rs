//! A throttled service: [`Throttle`].

use std::sync::Arc;
use std::task::{Context, Poll};

use tower_service::Service;

use super::future::{Direction, ResponseFuture};
use super::layer::ThrottleLayer;

/// Delays or refuses the requests to a service; made by [`ThrottleLayer`] or
/// [`InboundLayer`](super::inbound::InboundLayer).
///
/// It is always ready: requests wait in the limiter's queue. [`max_waiting`](crate::LimiterBuilder::max_waiting) bounds
/// that queue.
///
/// # Errors
///
/// Made by a [`ThrottleLayer`], it fails with the limiter's [`Error`](crate::Error), which can be downcast from the
/// [`BoxError`](super::BoxError), or with the error of the service. Made by an inbound layer, it fails only with the
/// error of the service, unchanged.
#[derive(Debug, Clone)]
pub struct Throttle<S, L = ThrottleLayer> {
    pub(super) inner: S,
    pub(super) layer: Arc<L>,
    /// Whether the clones of the inner service are one service.
    pub(super) is_shared: bool,
}

impl<S, L> Throttle<S, L> {
    /// The service inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The service inside, mutably.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside, without the throttle.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, L, Q> Service<Q> for Throttle<S, L>
where
    S: Service<Q> + Clone,
    L: Direction<S, Q>,
{
    type Response = L::Response;
    type Error = L::Error;
    type Future = ResponseFuture<S, Q, L>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Q) -> Self::Future {
        // A clone has not been polled ready, and the future does that before it calls it.
        let (service, layer) = (self.inner.clone(), self.layer.clone());
        ResponseFuture::new(service, self.is_shared, request, layer)
    }
}
