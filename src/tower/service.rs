//! A throttled service, and those inside it that are not `Clone`: [`Throttle`] and [`Shared`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{fmt, mem};

use tokio::sync::{self, OwnedMutexGuard};
use tower_layer::Layer;
use tower_service::Service;

use super::future::{Direction, ResponseFuture};
use super::layer::ThrottleLayer;
use crate::lock::Mutex;

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

impl<S, L, Q> Service<Q> for Throttle<S, L>
where
    S: Service<Q> + Clone,
    L: Direction<S, Q>,
{
    type Response = L::Response;
    type Error = L::Error;
    type Future = ResponseFuture<S, Q, L, S::Future, L::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Q) -> Self::Future {
        // A clone has not been polled ready, and the future does that before it calls it.
        let (service, layer) = (self.inner.clone(), self.layer.clone());
        ResponseFuture::new(service, self.is_shared, request, layer)
    }
}

/// Throttles services that are not `Clone`; made by [`ThrottleLayer::shared`](crate::ThrottleLayer::shared).
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct SharedLayer<L>(pub(super) L);

impl<S, L: Clone> Layer<S> for SharedLayer<L> {
    type Service = Throttle<Shared<S>, L>;

    fn layer(&self, inner: S) -> Self::Service {
        Throttle {
            inner: Shared {
                service: Arc::new(Mutex::new(inner)),
                turns: Arc::default(),
                access: Access::None,
            },
            layer: Arc::new(self.0.clone()),
            is_shared: true,
        }
    }
}

/// A service behind a lock, so that it can be cloned; made by [`SharedLayer`].
///
/// A clone takes the lock to make the service ready, and releases it right after the call. So responses arrive
/// concurrently. If a clone is dropped before the call, the service stays ready for the next one.
pub struct Shared<S> {
    service: Arc<Mutex<S>>,
    /// The one turn to lock the service for longer than a moment. Waiting for it does not name the type of the service, which
    /// a spawned task could not prove to be `Send` then.
    turns: Arc<sync::Mutex<()>>,
    access: Access,
}

enum Access {
    None,
    Waiting(Pin<Box<dyn Future<Output = OwnedMutexGuard<()>> + Send + Sync>>),
    Held(OwnedMutexGuard<()>),
}

impl<Q, S: Service<Q> + Send> Service<Q> for Shared<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        loop {
            self.access = match &mut self.access {
                Access::None => Access::Waiting(Box::pin(self.turns.clone().lock_owned())),
                Access::Waiting(turn) => Access::Held(ready!(turn.as_mut().poll(cx))),
                Access::Held(_) => return self.service.lock().poll_ready(cx),
            };
        }
    }

    fn call(&mut self, request: Q) -> S::Future {
        match mem::replace(&mut self.access, Access::None) {
            Access::Held(_turn) => self.service.lock().call(request),
            _ => panic!("called before it was ready"),
        }
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self {
            service: self.service.clone(),
            turns: self.turns.clone(),
            access: Access::None,
        }
    }
}

impl<S> fmt::Debug for Shared<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
