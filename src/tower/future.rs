//! The response of a throttled service, on its way: [`ResponseFuture`].

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::BoxError;
use super::report::Report;
use super::waiting::{Stopped, Waiting};
use crate::acquire::{Acquire, Error};
use crate::departure::Departure;
use crate::feedback::{Applying, Departed, Feedback, Headers};
use crate::permit::Permit;

pin_project! {
    /// Waits for a permit, then for the service to be ready, then for its response.
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct ResponseFuture<S, Q, R, F = Headers>
    where
        S: Service<Q>,
    {
        #[pin]
        stage: Stage<S, Q, S::Future, S::Response>,
        ears: Ears<R, F>,
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
            departed: Option<(Departure, Departed)>,
        },
        // The store learns of the limits in the response before the caller gets it, as the next attempt may follow at
        // once.
        Applying {
            applying: Applying,
            response: Option<A>,
        },
        Refused {
            error: Option<Error>,
        },
    }
}

/// Who learns of a response: the caller, of how its request departed, and the limiter.
#[derive(Debug, Clone)]
pub(super) struct Ears<R, F> {
    pub(super) report: R,
    pub(super) feedback: F,
}

impl<S: Service<Q>, Q, R, F> ResponseFuture<S, Q, R, F> {
    /// Calls the service with the permit that is asked for, without one, or never.
    pub(super) fn new(
        service: S,
        request: Q,
        admitted: Result<Option<Acquire>, Error>,
        ears: Ears<R, F>,
    ) -> Self {
        let stage = match admitted {
            Ok(acquire) => Stage::Waiting {
                waiting: Waiting::new(service, request, acquire),
            },
            Err(error) => Stage::Refused { error: Some(error) },
        };
        Self { stage, ears }
    }
}

impl<S, Q, R, F> Future for ResponseFuture<S, Q, R, F>
where
    S: Service<Q> + Clone,
    S::Error: Into<BoxError>,
    R: Report<S::Response>,
    F: Feedback<S::Response>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (mut stage, Ears { report, feedback }) = (this.stage, this.ears);
        loop {
            let next = match stage.as_mut().project() {
                StageProjection::Waiting { waiting } => match ready!(waiting.poll(cx)) {
                    Ok(()) => {
                        let depart =
                            |permit: Permit| (Departure::from(&permit), Departed::new(&permit));
                        let departed = waiting.take_permit().map(depart);
                        let response = waiting.call();
                        Stage::Calling { response, departed }
                    }
                    Err(stopped) => {
                        stage.set(Stage::Refused { error: None });
                        return Poll::Ready(Err(match stopped {
                            Stopped::Refused(error) => error.into(),
                            Stopped::Failed(error) => error.into(),
                        }));
                    }
                },
                StageProjection::Calling { response, departed } => {
                    let mut response = ready!(response.poll(cx)).map_err(Into::into)?;
                    let Some((departure, departed)) = departed.take() else {
                        return Poll::Ready(Ok(response));
                    };
                    let advice = feedback.read(&response);
                    report.report(departure, &mut response);
                    let Some(applying) = departed.apply(&advice) else {
                        return Poll::Ready(Ok(response));
                    };
                    Stage::Applying {
                        applying,
                        response: Some(response),
                    }
                }
                StageProjection::Applying { applying, response } => {
                    ready!(applying.as_mut().poll(cx));
                    let response = response.take().expect("polled after it was ready");
                    return Poll::Ready(Ok(response));
                }
                StageProjection::Refused { error } => {
                    let error = error.take().expect("polled after it was ready");
                    return Poll::Ready(Err(error.into()));
                }
            };
            stage.set(next);
        }
    }
}

impl<S: Service<Q>, Q, R, F> fmt::Debug for ResponseFuture<S, Q, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
