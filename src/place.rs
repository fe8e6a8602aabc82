//! The place of a request among those in progress: [`Place`].

use std::sync::Arc;
use std::task::{Context, Poll};

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
}

impl Place {
    pub(crate) fn new(held: Option<Box<Held>>) -> Self {
        Self { held }
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

    /// Has its lease renewed on this runtime.
    pub(crate) fn ensure_task(&self) {
        self.held.iter().for_each(|held| held.ensure_task());
    }

    /// Ready once the work has to be dropped, with its policy.
    pub(crate) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<Arc<Policy>> {
        match &mut self.held {
            Some(held) => held.poll_lost(cx),
            None => Poll::Pending,
        }
    }
}
