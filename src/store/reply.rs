//! The answers of stores: [`Reply`].

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Answered;
use crate::error::StoreError;

/// The answer of a store: there already, or under way.
pub struct Reply(Stage);

type Answer = Result<Answered, StoreError>;

enum Stage {
    Ready(Option<Answer>),
    Pending(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

impl Reply {
    /// An answer that is there already.
    pub fn ready(answer: Answer) -> Self {
        Self(Stage::Ready(Some(answer)))
    }

    /// The answer, if it is there already.
    pub(crate) fn take_ready(&mut self) -> Option<Answer> {
        match &mut self.0 {
            Stage::Ready(answer) => answer.take(),
            Stage::Pending(_) => None,
        }
    }

    /// The answer that this future will give.
    pub fn pending(answer: impl Future<Output = Answer> + Send + 'static) -> Self {
        Self(Stage::Pending(Box::pin(answer)))
    }
}

impl Future for Reply {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Stage::Ready(answer) => Poll::Ready(answer.take().expect("polled after it was ready")),
            Stage::Pending(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}
