//! The answer of a server behind a limit, on its way: [`ResponseFuture`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::answers::{Answers, Charge, Refusal};
use super::gate::Gate;
use super::refused::Refused;
use crate::permit::Permit;
use crate::tower::waiting::{Stopped, Waiting};

pin_project! {
    /// Waits for the verdict, then for the service to be ready, then for its response.
    ///
    /// It is safe to drop at any time: a departure that was granted is given back, unless the service was called.
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct ResponseFuture<S, Q, F, C>
    where
        S: Service<Q>,
    {
        #[pin]
        stage: Stage<S, Q, S::Future>,
        answers: Arc<Answers<F, C>>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<S, Q, F> {
        Waiting {
            waiting: Waiting<S, Q, Gate>,
            // Still to be decided on.
            refused: Option<Refused>,
            // It passes, as the layer only observes.
            observed: Option<Refused>,
        },
        Calling {
            #[pin]
            response: F,
            told: Option<Told>,
        },
        Done,
    }
}

/// A permit, or the reason why a request would have been refused, if the layer did more than observe.
type Told = Result<Permit, Refused>;

impl<S: Service<Q>, Q, F, C> ResponseFuture<S, Q, F, C> {
    /// A request without a gate is exempt, or refused already.
    pub(super) fn new(
        service: S,
        request: Q,
        gate: Option<Gate>,
        refused: Option<Refused>,
        answers: Arc<Answers<F, C>>,
    ) -> Self {
        let stage = Stage::Waiting {
            waiting: Waiting::new(service, request, gate),
            refused,
            observed: None,
        };
        Self { stage, answers }
    }
}

impl<S, Q, B, F, C> Future for ResponseFuture<S, Request<Q>, F, C>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    F: Refusal<B>,
    C: Charge<B>,
{
    type Output = Result<Response<B>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (mut stage, answers) = (this.stage, this.answers);
        loop {
            let next = match stage.as_mut().project() {
                StageProjection::Waiting {
                    waiting,
                    refused,
                    observed,
                } => {
                    if let Some(refused) = refused.take() {
                        match answers.decide(refused) {
                            Ok(response) => {
                                stage.set(Stage::Done);
                                return Poll::Ready(Ok(response));
                            }
                            Err(passes) => {
                                waiting.exempt();
                                *observed = Some(passes);
                            }
                        }
                    }
                    match ready!(waiting.poll(cx)) {
                        Ok(()) => depart(waiting, observed.take()),
                        Err(Stopped::Refused(why)) => {
                            *refused = Some(why);
                            continue;
                        }
                        Err(Stopped::Failed(error)) => {
                            stage.set(Stage::Done);
                            return Poll::Ready(Err(error));
                        }
                    }
                }
                StageProjection::Calling { response, told } => {
                    let answer = ready!(response.poll(cx));
                    let told = told.take();
                    stage.set(Stage::Done);
                    // Without a response, nobody says that the request does not count: so it does.
                    let mut response = answer?;
                    match told {
                        Some(Ok(permit)) => answers.settle(permit, &mut response),
                        Some(Err(refused)) => answers.tell(refused, &mut response),
                        None => {}
                    }
                    return Poll::Ready(Ok(response));
                }
                StageProjection::Done => panic!("polled after it was ready"),
            };
            stage.set(next);
        }
    }
}

/// Calls the service, which is ready, as the request may depart.
fn depart<S, Q>(
    waiting: &mut Waiting<S, Request<Q>, Gate>,
    observed: Option<Refused>,
) -> Stage<S, Request<Q>, S::Future>
where
    S: Service<Request<Q>> + Clone,
{
    if let Some(refused) = &observed
        && let Some(request) = waiting.request_mut()
    {
        request.extensions_mut().insert(refused.clone());
    }
    let permit = waiting.take_permit();
    let response = waiting.call();
    let told = permit.map(Ok).or(observed.map(Err));
    Stage::Calling { response, told }
}

impl<S: Service<Q>, Q, F, C> fmt::Debug for ResponseFuture<S, Q, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
