//! The response of a throttled service, on its way: [`ResponseFuture`].

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::BoxError;
use super::report::Report;
use super::waiting::{Stopped, Waiting};
use crate::acquire::Acquire;
use crate::departure::Departure;
use crate::error::Error;

pin_project! {
    /// Waits for a permit, then for the service to be ready, then for its response.
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct ResponseFuture<S, Q, R>
    where
        S: Service<Q>,
    {
        #[pin]
        stage: Stage<S, Q, R, S::Future>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<S, Q, R, F> {
        Waiting {
            waiting: Waiting<S, Q, R>,
        },
        Calling {
            #[pin]
            response: F,
            departure: Option<Departure>,
            report: R,
        },
        Refused {
            error: Option<Error>,
        },
    }
}

impl<S: Service<Q>, Q, R> ResponseFuture<S, Q, R> {
    pub(super) fn new(service: S, request: Q, acquire: Option<Acquire>, report: R) -> Self {
        let waiting = Waiting::new(service, request, acquire, report);
        Self {
            stage: Stage::Waiting { waiting },
        }
    }

    pub(super) fn refused(error: Error) -> Self {
        Self {
            stage: Stage::Refused { error: Some(error) },
        }
    }
}

impl<S, Q, R> Future for ResponseFuture<S, Q, R>
where
    S: Service<Q> + Clone,
    S::Error: Into<BoxError>,
    R: Report<S::Response>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            let next = match stage.as_mut().project() {
                StageProjection::Waiting { waiting } => match ready!(waiting.poll(cx)) {
                    Ok(()) => {
                        let departure = waiting.depart();
                        let (response, report) = waiting.call();
                        Stage::Calling {
                            response,
                            departure,
                            report,
                        }
                    }
                    Err(stopped) => {
                        stage.set(Stage::Refused { error: None });
                        return Poll::Ready(Err(match stopped {
                            Stopped::Refused(error) => error.into(),
                            Stopped::Failed(error) => error.into(),
                        }));
                    }
                },
                StageProjection::Calling {
                    response,
                    departure,
                    report,
                } => {
                    let mut response = ready!(response.poll(cx)).map_err(Into::into)?;
                    if let Some(departure) = departure.take() {
                        report.report(departure, &mut response);
                    }
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

impl<S: Service<Q>, Q, R> fmt::Debug for ResponseFuture<S, Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
