//! Waiting for a permit: the futures [`Acquire`] and [`TryAcquire`].

mod error;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::algorithm::Mode;
use crate::dispatcher::{Current, Granted, Handle, Place, Waiting};
use crate::key::Key;
use crate::permit::{Decision, Limited, Permit};
use crate::policy::Policy;
use crate::queue::Refusal;
use crate::telemetry::{Entered, Outcome, Span};

pub(crate) use self::error::Cause;
pub use self::error::Error;

/// Waits until a request may depart; see [`Limiter::acquire`](crate::Limiter::acquire).
///
/// Defaults: a cost of 1, and the policy's [`max_wait`](crate::LimiterBuilder::max_wait).
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire {
    handle: Arc<Handle>,
    key: Key,
    cost: u32,
    max_wait: Option<Duration>,
    deadline: Option<Instant>,
    stage: Stage,
    span: Span,
}

enum Stage {
    /// With its place in the queue, if it has one already.
    Start(Option<Place>),
    /// The telemetry of this policy counts it as waiting.
    Waiting(Waiting, Arc<Current>),
    Done,
}

enum Refused {
    Limited(Limited, Duration),
    Failed(Error),
}

impl Acquire {
    pub(crate) fn new(handle: Arc<Handle>, key: Key) -> Self {
        Self {
            handle,
            key,
            cost: 1,
            max_wait: None,
            deadline: None,
            stage: Stage::Start(None),
            span: Span::NONE,
        }
    }

    /// Waits once more, in the place that the request had when it got this permit. Its bounds stay as they were.
    pub(crate) fn again(&mut self, expired: Permit) {
        self.stage = Stage::Start(Some(expired.granted.place));
        expired.forfeit();
    }

    /// Sets the cost of the request, from 1 to what the quotas allow at once. All of it departs at once.
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    /// Fails at once if the request would have to wait longer, unless the policy is stricter.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(self.max_wait.map_or(max_wait, |it| it.min(max_wait)));
        self
    }

    /// Fails at once if the request could not depart by then. A request that may depart now does so even if the
    /// deadline has passed.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |it| it.min(deadline)));
        self
    }

    /// Runs a function once it may depart.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tower_throttle::{Limiter, Quota};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
    /// let expensive = limiter.acquire("oracle").cost(5).max_wait(Duration::from_secs(30));
    /// assert_eq!(expensive.run(|| async { 42 }).await?, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Limiter::acquire`](crate::Limiter::acquire) does; then the function was not called.
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

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(self.poll_permit(cx));
        Poll::Ready(result.map_err(|refused| match refused {
            Refused::Failed(error) => error,
            Refused::Limited(limited, waited) => {
                Error::from(Cause::TooLong { waited, limited }).by(&self.handle.policy())
            }
        }))
    }
}

/// Decides at once; see [`Limiter::try_acquire`](crate::Limiter::try_acquire).
///
/// Default: a cost of 1.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct TryAcquire(Acquire);

impl TryAcquire {
    pub(crate) fn new(handle: Arc<Handle>, key: Key) -> Self {
        Self(Acquire::new(handle, key).max_wait(Duration::ZERO))
    }

    /// Sets the cost of the request, from 1 to what the quotas allow at once.
    pub fn cost(self, cost: u32) -> Self {
        Self(self.0.cost(cost))
    }
}

impl Future for TryAcquire {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(self.0.poll_permit(cx)) {
            Ok(permit) => Ok(Decision::Granted(permit)),
            Err(Refused::Limited(limited, _)) => Ok(Decision::Limited(limited)),
            Err(Refused::Failed(error)) => Err(error),
        })
    }
}

impl Acquire {
    fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Refused>> {
        if let Stage::Start(place) = self.stage
            && let Some(result) = self.start(place)
        {
            self.stage = Stage::Done;
            return Poll::Ready(result);
        }
        let Stage::Waiting(waiting, joined) = &mut self.stage else {
            panic!("polled after it was ready");
        };
        let entered = self.span.enter();
        let since = waiting.place.arrival;
        let result = ready!(Pin::new(waiting).poll(cx));
        joined.telemetry.left(&self.key);
        self.stage = Stage::Done;
        let (current, waited) = (self.handle.current(), since.elapsed());
        Poll::Ready(match result {
            Ok(granted) => Ok(self.granted(current, granted, waited, &entered)),
            Err(refusal) => Err(self.refused(&current, refusal, waited, &entered)),
        })
    }

    /// Yields the result if it is known at once, or joins the queue.
    fn start(&mut self, place: Option<Place>) -> Option<Result<Permit, Refused>> {
        let now = Instant::now();
        let (handle, key, cost) = (&self.handle, &self.key, self.cost);
        let current = handle.current();
        let entered = current.telemetry.begin(key, cost);
        if let Err(error) = check(&current.policy, key, cost) {
            self.ended(&current, Outcome::Invalid, Duration::ZERO, &entered);
            return Some(Err(Refused::Failed(error.by(&current.policy))));
        }
        let place = place.unwrap_or_else(|| now.into());
        let bound = self.bound(&current.policy, place.arrival);
        // With an earlier bound, it departs by the answer to the first call or not at all.
        let answered = now + handle.guard.round_trip();
        let waits = bound.is_none_or(|bound| answered < bound);
        let denied = match handle.depart_at_once(&current.policy, key, cost, place, now) {
            Some(Ok(granted)) => {
                let waited = now - place.arrival;
                return Some(Ok(self.granted(current, granted, waited, &entered)));
            }
            Some(Err(standing)) if !waits => Some(standing),
            _ => {
                let denied = handle.denied(key, cost, bound, now);
                denied.inspect(|_| current.telemetry.remembered())
            }
        };
        let joined = match denied {
            Some(standing) => Err(Refusal::Limited(standing)),
            None if waits => handle.join(Mode::Wait, key, cost, place, bound),
            None => handle.join(Mode::Try, key, cost, now.into(), None),
        };
        match joined {
            Ok(waiting) => {
                current.telemetry.joined(key);
                self.span.keep(&entered);
                self.stage = Stage::Waiting(waiting, current);
                None
            }
            Err(refusal) => Some(Err(self.refused(
                &current,
                refusal,
                Duration::ZERO,
                &entered,
            ))),
        }
    }

    /// The time by which a request has to depart that arrived at this time.
    fn bound(&self, policy: &Policy, arrival: Instant) -> Option<Instant> {
        let bounds = self.max_wait.into_iter().chain(policy.max_wait());
        let leaky = policy.leaky_wait(self.handle.guard.current());
        let longest = bounds.chain(leaky).min();
        let until = longest.and_then(|longest| arrival.checked_add(longest));
        until.into_iter().chain(self.deadline).min()
    }

    fn granted(
        &self,
        current: Arc<Current>,
        granted: Granted,
        waited: Duration,
        entered: &Entered,
    ) -> Permit {
        let outcome = match granted.turn.is_counted() {
            true => Outcome::Granted,
            false => Outcome::Fallback,
        };
        self.ended(&current, outcome, waited, entered);
        Permit {
            handle: self.handle.clone(),
            current,
            key: self.key.clone(),
            granted,
            waited,
        }
    }

    fn refused(
        &self,
        current: &Current,
        refusal: Refusal,
        waited: Duration,
        entered: &Entered,
    ) -> Refused {
        let (outcome, cause) = match refusal {
            Refusal::Limited(standing) => {
                self.ended(current, Outcome::Limited, waited, entered);
                return Refused::Limited(Limited::new(&standing, Instant::now()), waited);
            }
            Refusal::Full(waiting) => (Outcome::QueueFull, Cause::QueueFull { waiting }),
            Refusal::TooCostly => {
                let problem = current.policy.problem_of_cost(self.cost);
                let cause = Cause::InvalidCost(problem.unwrap_or_default());
                (Outcome::Invalid, cause)
            }
            Refusal::Store(error) => (Outcome::from(&error), Cause::Store(error)),
        };
        self.ended(current, outcome, waited, entered);
        Refused::Failed(Error::from(cause).by(&current.policy))
    }

    fn ended(&self, current: &Current, outcome: Outcome, waited: Duration, entered: &Entered) {
        let request = (&self.key, self.cost);
        current.telemetry.ended(entered, request, outcome, waited);
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Stage::Waiting(waiting, joined) = &self.stage {
            let (waited, entered) = (waiting.place.arrival.elapsed(), self.span.enter());
            joined.telemetry.left(&self.key);
            let current = self.handle.current();
            self.ended(&current, Outcome::Cancelled, waited, &entered);
        }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("key", &self.key)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

/// Fails if no such request can ever depart.
pub(crate) fn check(policy: &Policy, key: &Key, cost: u32) -> Result<(), Error> {
    if key.as_str().is_empty() {
        return Err(Cause::EmptyKey.into());
    }
    match policy.problem_of_cost(cost) {
        Some(problem) => Err(Cause::InvalidCost(problem).into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limiter, Quota};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_request_that_asks_again_keeps_its_arrival_and_its_bound() {
        let quota = Quota::per_second(1);
        let limiter = Limiter::builder().quota(quota).build().unwrap();
        for (max_wait, is_granted) in [(1_500, false), (3_000, true)] {
            limiter.reset("a").await.unwrap();
            limiter.acquire("a").await.unwrap();
            let mut asks = limiter
                .acquire("a")
                .max_wait(Duration::from_millis(max_wait));
            let permit = (&mut asks).await.unwrap();
            limiter.pause("a", Instant::now() + SECOND).await.unwrap();
            asks.again(permit);
            let start = Instant::now();
            match (&mut asks).await {
                Ok(permit) => assert!(is_granted && permit.waited() >= 2 * SECOND),
                Err(error) => assert!(!is_granted && error.limited().is_some()),
            }
            assert_eq!(start.elapsed() >= SECOND, is_granted);
        }
    }
}
