//! A throttled service: [`Throttle`].

use std::task::{Context, Poll};

use tower_service::Service;

use super::BoxError;
use super::future::ResponseFuture;
use super::layer::ThrottleLayer;
use super::report::{InExtensions, Report};
use crate::feedback::{Feedback, Headers};
use crate::key::KeyExtractor;
use crate::limiter::ByRules;

/// Delays the requests to a service; made by [`ThrottleLayer`](super::ThrottleLayer).
///
/// It is always ready: requests wait in the limiter's queue. [`max_waiting`](crate::LimiterBuilder::max_waiting) bounds
/// that queue.
///
/// # Errors
///
/// Fails with the limiter's [`Error`](crate::Error), which can be downcast from the [`BoxError`], or with the
/// error of the service.
#[derive(Debug, Clone)]
pub struct Throttle<S, K = ByRules, R = InExtensions, F = Headers> {
    pub(super) inner: S,
    pub(super) layer: ThrottleLayer<K, R, F>,
}

impl<S, K, R, F> Throttle<S, K, R, F> {
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

impl<S, K, R, F, Q> Service<Q> for Throttle<S, K, R, F>
where
    S: Service<Q> + Clone,
    S::Error: Into<BoxError>,
    K: KeyExtractor<Q>,
    R: Report<S::Response> + Clone,
    F: Feedback<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S, Q, R, F>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let ThrottleLayer { limiter, key, ears } = &self.layer;
        let admitted = limiter.admit(key.extract(&request));
        ResponseFuture::new(self.inner.clone(), request, admitted, ears.clone())
    }
}
