//! A server's service behind a limit: [`Inbound`].

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::answers::{Answers, Charge, EveryRequest, Refusal};
use super::future::ResponseFuture;
use super::gate::Gate;
use super::problem::ProblemDetails;
use super::refused::Refused;
use crate::key::KeyExtractor;
use crate::limiter::Limiter;

/// Answers the requests that are over the limit in place of the service; made by
/// [`InboundLayer`](super::InboundLayer).
///
/// Always ready, and it fails only with what the service fails with.
#[derive(Clone)]
pub struct Inbound<S, K, F = ProblemDetails, C = EveryRequest> {
    pub(super) inner: S,
    pub(super) limiter: Limiter,
    pub(super) key: Arc<K>,
    pub(super) answers: Arc<Answers<F, C>>,
}

impl<S, K, F, C> Inbound<S, K, F, C> {
    /// The service inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The service inside, mutably.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside, without the limit.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, F, C, Q, B> Service<Request<Q>> for Inbound<S, K, F, C>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    K: KeyExtractor<Request<Q>>,
    F: Refusal<B>,
    C: Charge<B>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = ResponseFuture<S, Request<Q>, F, C>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // A clone has not been polled ready, and it is not called before the future did so.
        let (inner, answers) = (self.inner.clone(), self.answers.clone());
        let (gate, refused) = match self.limiter.find(self.key.extract(&request)) {
            None => (None, None),
            Some((handle, Ok(key), cost)) => {
                let gate = Gate::new(handle, key, cost, answers.options.max_wait);
                (Some(gate), None)
            }
            Some((handle, Err(reason), _)) => {
                let refused = Refused::no_key(handle.refuse_without_key(), reason);
                (None, Some(refused))
            }
        };
        ResponseFuture::new(inner, request, gate, refused, answers)
    }
}

impl<S: fmt::Debug, K, F, C> fmt::Debug for Inbound<S, K, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound")
            .field("inner", &self.inner)
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
