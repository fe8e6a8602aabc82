//! The answers of stores: [`Reply`].

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::StoreError;

/// The answer of a store: there already, or under way.
pub struct Reply<T>(Stage<T>);

enum Stage<T> {
    Ready(Option<Result<T, StoreError>>),
    Pending(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> Reply<T> {
    /// An answer that is there already.
    pub fn ready(answer: Result<T, StoreError>) -> Self {
        Self(Stage::Ready(Some(answer)))
    }

    /// The answer, if it is there already.
    pub(crate) fn take_ready(&mut self) -> Option<Result<T, StoreError>> {
        match &mut self.0 {
            Stage::Ready(answer) => answer.take(),
            Stage::Pending(_) => None,
        }
    }

    /// The answer that this future will give.
    pub fn pending(answer: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self(Stage::Pending(Box::pin(answer)))
    }
}

impl<T: Unpin> Future for Reply<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Stage::Ready(answer) => Poll::Ready(answer.take().expect("polled after it was ready")),
            Stage::Pending(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}
