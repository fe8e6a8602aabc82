//! Waiting for a permit: the futures [`Acquire`] and [`TryAcquire`].

use std::convert::identity;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use self::wait::Wait;
use crate::epoch::Epochs;
use crate::error::Error;
use crate::key::Key;
use crate::patience::Patience;
use crate::permit::{Decision, Limited, Permit};
use crate::policy::Policy;

mod start;
mod wait;

/// Waits until a request may depart; see [`Limiter::acquire`](crate::Limiter::acquire).
///
/// Defaults: a cost of 1, and the policy's [`max_wait`](crate::LimiterBuilder::max_wait).
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire {
    wait: Wait,
    patience: Patience,
}

impl Acquire {
    #[inline]
    pub(crate) fn new(epochs: Epochs, key: Key) -> Self {
        Self {
            patience: Patience::ALL,
            wait: Wait::new(epochs, key),
        }
    }

    /// Sets whether it is neither refused by what was refused before, nor remembered itself.
    #[cfg(feature = "tower")]
    pub(crate) fn forgetful(mut self, is_forgetful: bool) -> Self {
        self.wait.is_forgetful = is_forgetful;
        self
    }

    /// Keeps its place in the line for when it waits [again](Self::again), also if it does not wait at
    /// first.
    #[cfg_attr(
        not(feature = "tower"),
        expect(dead_code, reason = "only a service makes it wait")
    )]
    pub(crate) fn keep_place(mut self) -> Self {
        self.wait.keeps_place = true;
        self
    }

    /// Waits once more, from the place in the line that the expired permit had, under the quotas
    /// that it had: under others, the request might cost more than they hold.
    #[cfg_attr(
        not(feature = "tower"),
        expect(dead_code, reason = "only a service makes it wait")
    )]
    pub(crate) fn again(&mut self, expired: Permit) {
        self.wait.again(expired);
    }

    /// Sets what the request costs, from 1 to what the quotas hold.
    ///
    /// All of it departs at once.
    pub fn cost(mut self, cost: u32) -> Self {
        self.wait.cost = cost;
        self
    }

    /// Refuses the request at once if it would have to wait longer, unless the policy is stricter.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.patience.max_wait(max_wait);
        self
    }

    /// Refuses the request at once if it could not depart by then. What may depart now does, even if
    /// the deadline has passed.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.patience.deadline(deadline);
        self
    }

    /// Runs a function once it may depart, as [`Limiter::run`](crate::Limiter::run) does, at this cost and within
    /// these bounds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tower_throttle::{Limiter, Quota};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
    /// let dear = limiter.acquire("oracle").cost(5).max_wait(Duration::from_secs(30));
    /// assert_eq!(dear.run(|| async { 42 }).await?, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Limiter::acquire`](crate::Limiter::acquire); then the function was not called.
    ///
    /// # Panics
    ///
    /// As for [`Limiter::acquire`](crate::Limiter::acquire), and as the function does.
    pub async fn run<F, R>(self, function: F) -> Result<R::Output, Error>
    where
        F: FnOnce() -> R,
        R: Future,
    {
        let _departs = self.await?;
        Ok(function().await)
    }
}

impl Future for Acquire {
    type Output = Result<Permit, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { wait, patience } = self.get_mut();
        let limited = |limited: Limited, wait: &Wait| {
            let error = Error::too_long(wait.waited(), limited);
            Err(wait.refused_by.iter().fold(error, |error, it| error.by(it)))
        };
        wait.poll(cx, patience, identity, limited)
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wait.debug(f, "Acquire")
    }
}

/// Decides at once; see [`Limiter::try_acquire`](crate::Limiter::try_acquire).
///
/// Default: a cost of 1.
#[must_use = "futures do nothing unless they are awaited"]
pub struct TryAcquire {
    wait: Wait,
}

impl TryAcquire {
    #[inline]
    pub(crate) fn new(epochs: Epochs, key: Key) -> Self {
        Self {
            wait: Wait::new(epochs, key),
        }
    }

    /// Sets what the request costs, from 1 to what the quotas hold.
    pub fn cost(mut self, cost: u32) -> Self {
        self.wait.cost = cost;
        self
    }

    /// Sets whether it is neither refused by what was refused before, nor remembered itself.
    #[cfg(feature = "tower")]
    pub(crate) fn forgetful(mut self, is_forgetful: bool) -> Self {
        self.wait.is_forgetful = is_forgetful;
        self
    }
}

impl Future for TryAcquire {
    type Output = Result<Decision, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let limited = |limited, _: &Wait| Ok(Decision::Limited(limited));
        let wait = &mut self.get_mut().wait;
        wait.poll(cx, &Patience::NONE, Decision::Granted, limited)
    }
}

impl fmt::Debug for TryAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wait.debug(f, "TryAcquire")
    }
}

/// Whether such a request can ever depart.
#[inline]
pub(crate) fn check(policy: &Policy, key: &Key, cost: u32) -> Result<(), Error> {
    let most = policy.largest_cost();
    if key.as_str().is_empty() {
        Err(Error::empty_key())
    } else if cost == 0 {
        Err(Error::zero_cost())
    } else if cost > most {
        Err(Error::too_costly(cost, most))
    } else {
        Ok(())
    }
}
