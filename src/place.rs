//! The place of a request among those in progress: [`Place`].

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::acquire::{Cause, Error};
use crate::dispatcher::Held;
use crate::policy::Policy;

/// The place of a request among those in progress; made by [`Permit::hold`](crate::Permit::hold). It is released when it is
/// dropped.
///
/// ```
/// use tower_throttle::{Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().quota(Quota::concurrent(1)).build()?;
/// let place = limiter.acquire("printer").await?.hold();
/// assert!(!limiter.try_acquire("printer").await?.is_granted());
/// drop(place);
/// assert!(limiter.try_acquire("printer").await?.is_granted());
/// # Ok(())
/// # }
/// ```
///
/// A process renews the lease of its places as long as it holds them, on a tokio runtime. If it dies, other processes get the
/// places when the [lease](crate::Quota::lease) ends. If it cannot renew the lease, the place [is lost](Self::is_lost), and
/// [`Lost`](crate::Lost) says what happens then.
#[derive(Debug)]
#[must_use = "the place is released when it is dropped"]
pub struct Place {
    held: Option<Box<Held>>,
    policy: Arc<Policy>,
}

impl Place {
    pub(crate) fn new(held: Option<Box<Held>>, policy: Arc<Policy>) -> Self {
        Self { held, policy }
    }

    /// False if no quota limits how many requests are in progress, or if the request does not count.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether the lease has ended, so that the store may have given the place to another request. It stays so, although the
    /// process takes the place again when the store is back.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_lost())
    }

    /// Does work that holds the place, and releases it.
    ///
    /// # Errors
    ///
    /// With [`Lost::Abort`](crate::Lost::Abort), it fails with [`ErrorKind::LostPlace`](crate::ErrorKind::LostPlace) if the place is lost. The work is
    /// dropped then.
    pub async fn run<F: Future>(mut self, work: F) -> Result<F::Output, Error> {
        let mut work = pin!(work);
        if let Some(held) = &self.held {
            held.ensure_task();
        }
        poll_fn(|cx| {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            self.poll_lost(cx).map(Err)
        })
        .await
    }

    /// Ready once the work has to be dropped.
    pub(crate) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let Some(held) = &mut self.held else {
            return Poll::Pending;
        };
        held.poll_lost(cx).map(|()| lost(self.policy.clone()))
    }
}

/// The error of a request whose place is lost.
pub(crate) fn lost(policy: Arc<Policy>) -> Error {
    Error::new(Cause::LostPlace, policy)
}
