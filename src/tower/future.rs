//! The response of a throttled service, on its way: [`ResponseFuture`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::inbound::Refused;
use super::waiting::{Stopped, Waiting};
use crate::acquire::{Acquire, Error};
use crate::alarm::Alarm;
use crate::feedback::Applying;
use crate::permit::Permit;

/// The difference between a layer for clients and one for servers: which permit a request needs, what happens without
/// one, and what becomes of the response.
pub trait Direction<S: Service<Q>, Q> {
    /// The response and the error of the throttled service.
    type Response;
    type Error;

    /// Asks for the permit of a request; `None` if it needs none.
    fn admit(&self, request: &Q) -> Option<Acquire>;

    /// Answers a request that gets no permit, or that has [lost its place](crate::ErrorKind::LostPlace): then the service has
    /// the request, and `waiting` is `None`. Returns `None` if the request goes on.
    fn refuse(
        &self,
        error: Error,
        waiting: Option<(Acquire, &mut Q)>,
        departed: &mut Option<Departed>,
    ) -> Option<Result<Self::Response, Self::Error>>;

    /// Adds to the response how its request departed, and reads what it says of limits.
    fn complete(
        &self,
        departed: &mut Option<Departed>,
        response: S::Response,
    ) -> (Self::Response, Option<Applying>);

    /// Converts an error of the service inside. The request may have a permit.
    fn fail(&self, departed: Option<Departed>, error: S::Error) -> Self::Error;
}

/// The permit by which a request departed, or the reason why it passed without one.
pub(super) type Departed = Result<Permit, Box<Refused>>;

pin_project! {
    /// Waits for a permit, then for the service to be ready, then for its response.
    ///
    /// It is safe to drop at any time: a departure that was granted is given back, unless the service was called.
    #[must_use = "futures do nothing unless they are awaited"]
    // Without bounds, which a spawned task could not prove if the error of the service is a `BoxError`.
    pub struct ResponseFuture<S, Q, L, F, A> {
        #[pin]
        stage: Stage<S, Q, F, A>,
        // It stays in its place, as moving it takes longer than its use.
        departed: Option<Departed>,
        layer: Arc<L>,
    }

    impl<S, Q, L, F, A> PinnedDrop for ResponseFuture<S, Q, L, F, A> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // The service has the request, even if its call has panicked.
            if let StageProjection::Waiting { waiting } = this.stage.project()
                && waiting.request.is_some()
            {
                give_back(this.departed);
            }
        }
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<S, Q, F, A> {
        Waiting {
            waiting: Waiting<S, Q>,
        },
        Calling {
            #[pin]
            response: F,
        },
        // The store gets the limits in the response before the caller gets it, as the next attempt may follow at once.
        Applying {
            applying: Applying,
            response: Option<A>,
        },
        Done,
    }
}

impl<S, Q, L> ResponseFuture<S, Q, L, S::Future, L::Response>
where
    S: Service<Q>,
    L: Direction<S, Q>,
{
    pub(super) fn new(service: S, is_shared: bool, request: Q, layer: Arc<L>) -> Self {
        let waiting = Waiting {
            service,
            is_shared,
            acquire: layer.admit(&request),
            request: Some(request),
            expiry: Alarm::default(),
            has_expired: false,
            has_released: false,
        };
        Self {
            stage: Stage::Waiting { waiting },
            departed: None,
            layer,
        }
    }
}

impl<S, Q, L> Future for ResponseFuture<S, Q, L, S::Future, L::Response>
where
    S: Service<Q> + Clone,
    L: Direction<S, Q>,
{
    type Output = Result<L::Response, L::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (mut stage, departed, layer) = (this.stage, this.departed, this.layer);
        let result = loop {
            match stage.as_mut().project() {
                StageProjection::Waiting { waiting } => match ready!(waiting.poll(departed, cx)) {
                    Ok(()) => {
                        let request = waiting.request.take().expect("it is called once");
                        let response = waiting.service.call(request);
                        stage.set(Stage::Calling { response });
                    }
                    Err(Stopped::Failed(error)) => {
                        give_back(departed);
                        break Err(layer.fail(None, error));
                    }
                    Err(Stopped::Refused(error)) => {
                        let request = waiting.request.as_mut();
                        let waiting = waiting.acquire.take().zip(request);
                        if let Some(answer) = layer.refuse(error, waiting, departed) {
                            break answer;
                        }
                    }
                },
                StageProjection::Calling { response } => {
                    let response = match response.poll(cx) {
                        Poll::Ready(Ok(response)) => response,
                        Poll::Ready(Err(error)) => break Err(layer.fail(departed.take(), error)),
                        Poll::Pending => {
                            let Some(Ok(permit)) = departed else {
                                return Poll::Pending;
                            };
                            let lost = ready!(permit.granted.place.poll_lost(cx));
                            match layer.refuse(Error::lost_place(lost), None, departed) {
                                Some(answer) => break answer,
                                None => return Poll::Pending,
                            }
                        }
                    };
                    match layer.complete(departed, response) {
                        (response, None) => break Ok(response),
                        (response, Some(applying)) => {
                            let response = Some(response);
                            stage.set(Stage::Applying { applying, response });
                        }
                    }
                }
                StageProjection::Applying { applying, response } => {
                    let _ = ready!(applying.as_mut().poll(cx));
                    break Ok(response.take().expect("it is taken once"));
                }
                StageProjection::Done => panic!("polled after it was ready"),
            }
        };
        stage.set(Stage::Done);
        // The place of the request is free, even if the caller keeps this future.
        *departed = None;
        Poll::Ready(result)
    }
}

/// The request does not depart.
fn give_back(departed: &mut Option<Departed>) {
    if let Some(Ok(permit)) = departed.take() {
        permit.forfeit();
    }
}

impl<S, Q, L, F, A> fmt::Debug for ResponseFuture<S, Q, L, F, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
