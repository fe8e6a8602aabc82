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

pub use self::error::Error;

/// Waits until a request may depart; see [`Limiter::acquire`](crate::Limiter::acquire).
///
/// Defaults: a cost of 1, and the policy's [`max_wait`](crate::LimiterBuilder::max_wait).
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire {
    request: Request,
    max_wait: Option<Duration>,
    deadline: Option<Instant>,
}

impl Acquire {
    pub(crate) fn new(handle: Arc<Handle>, key: Key) -> Self {
        Self {
            request: Request::new(handle, key),
            max_wait: None,
            deadline: None,
        }
    }

    /// Waits once more, in the place that the request had when it got this permit. Its bounds stay as they were.
    pub(crate) fn again(&mut self, expired: Permit) {
        self.request.stage = Stage::Start(Some(expired.place()));
        expired.forfeit();
    }

    /// Sets the cost of the request, from 1 to what the quotas allow at once. All of it departs at once.
    pub fn cost(mut self, cost: u32) -> Self {
        self.request.cost = cost;
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

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            request,
            max_wait,
            deadline,
        } = self.get_mut();
        let bound = |policy: &Policy, guard: Duration, since: Instant| {
            let longest = max_wait
                .iter()
                .copied()
                .chain(policy.max_wait())
                .chain(policy.leaky_wait(guard))
                .min();
            let until = longest.and_then(|longest| since.checked_add(longest));
            until.into_iter().chain(*deadline).min()
        };
        Poll::Ready(match ready!(request.poll(cx, bound)) {
            Ok(permit) => Ok(permit),
            Err(Refused::Failed(error)) => Err(error),
            Err(Refused::Limited(limited, waited)) => {
                let policy = request.handle.policy();
                Err(Error::too_long(waited, limited).by(&policy))
            }
        })
    }
}

/// Decides at once; see [`Limiter::try_acquire`](crate::Limiter::try_acquire).
///
/// Default: a cost of 1.
#[must_use = "futures do nothing unless they are awaited"]
pub struct TryAcquire {
    request: Request,
}

impl TryAcquire {
    pub(crate) fn new(handle: Arc<Handle>, key: Key) -> Self {
        Self {
            request: Request::new(handle, key),
        }
    }

    /// Sets the cost of the request, from 1 to what the quotas allow at once.
    pub fn cost(mut self, cost: u32) -> Self {
        self.request.cost = cost;
        self
    }
}

impl Future for TryAcquire {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let at_once = |_: &Policy, _, since| Some(since);
        Poll::Ready(match ready!(self.request.poll(cx, at_once)) {
            Ok(permit) => Ok(Decision::Granted(permit)),
            Err(Refused::Limited(limited, _)) => Ok(Decision::Limited(limited)),
            Err(Refused::Failed(error)) => Err(error),
        })
    }
}

/// A request on its way to a permit.
struct Request {
    handle: Arc<Handle>,
    key: Key,
    cost: u32,
    stage: Stage,
    span: Span,
}

enum Stage {
    /// With its place in the queue, if it has one already.
    Start(Option<Place>),
    /// Since then, counted under this policy.
    Waiting(Waiting, Instant, Arc<Current>),
    Done,
}

enum Refused {
    Limited(Limited, Duration),
    Failed(Error),
}

impl Request {
    fn new(handle: Arc<Handle>, key: Key) -> Self {
        Self {
            handle,
            key,
            cost: 1,
            stage: Stage::Start(None),
            span: Span::NONE,
        }
    }

    /// `bound` is the time by which the request has to depart.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        bound: impl Fn(&Policy, Duration, Instant) -> Option<Instant>,
    ) -> Poll<Result<Permit, Refused>> {
        if let Stage::Start(place) = self.stage
            && let Some(result) = self.start(place, bound)
        {
            self.stage = Stage::Done;
            return Poll::Ready(result);
        }
        let Stage::Waiting(waiting, since, joined) = &mut self.stage else {
            panic!("polled after it was ready");
        };
        let entered = self.span.enter();
        let result = ready!(Pin::new(waiting).poll(cx));
        let waited = since.elapsed();
        let current = self.handle.current();
        joined.telemetry.left(&self.key);
        self.stage = Stage::Done;
        Poll::Ready(match result {
            Ok(granted) => Ok(self.granted(current, granted, waited, &entered)),
            Err(refusal) => Err(self.refused(refusal, waited, &entered)),
        })
    }

    /// Yields the result if it is known at once, or joins the queue.
    fn start(
        &mut self,
        place: Option<Place>,
        bound: impl Fn(&Policy, Duration, Instant) -> Option<Instant>,
    ) -> Option<Result<Permit, Refused>> {
        let now = Instant::now();
        let current = self.handle.current();
        let entered = current.telemetry.begin(&self.key, self.cost);
        if let Err(error) = check(&current.policy, &self.key, self.cost) {
            self.ended(Outcome::Invalid, Duration::ZERO, &entered);
            return Some(Err(Refused::Failed(error.by(&current.policy))));
        }
        let place = place.unwrap_or_else(|| now.into());
        let guard = self.handle.guard.current();
        let until = bound(&current.policy, guard, place.arrival);
        // With an earlier bound, it departs by the answer to the first call or not at all.
        let answered = now + self.handle.guard.round_trip();
        let waits = until.is_none_or(|until| answered < until);
        let (policy, key, cost) = (&current.policy, &self.key, self.cost);
        match (self.handle).depart_at_once(policy, key, cost, place, now) {
            Some(Ok(granted)) => {
                let waited = now - place.arrival;
                return Some(Ok(self.granted(current, granted, waited, &entered)));
            }
            Some(Err(standing)) if !waits => {
                let refusal = Refusal::Limited(standing);
                return Some(Err(self.refused(refusal, Duration::ZERO, &entered)));
            }
            _ => {}
        }
        if let Some(standing) = self.handle.denied(&self.key, self.cost, until, now) {
            current.telemetry.remembered();
            let refusal = Refusal::Limited(standing);
            return Some(Err(self.refused(refusal, Duration::ZERO, &entered)));
        }
        let handle = &self.handle;
        let joined = match waits {
            true => handle.join(Mode::Wait, &self.key, self.cost, place, until),
            false => handle.join(Mode::Try, &self.key, self.cost, now.into(), None),
        };
        match joined {
            Ok(waiting) => {
                current.telemetry.joined(&self.key);
                self.span.keep(&entered);
                self.stage = Stage::Waiting(waiting, place.arrival, current);
                None
            }
            Err(refusal) => Some(Err(self.refused(refusal, Duration::ZERO, &entered))),
        }
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
        let request = (&self.key, self.cost);
        current.telemetry.ended(entered, request, outcome, waited);
        let (handle, key) = (self.handle.clone(), self.key.clone());
        Permit::new(handle, current, key, granted, waited)
    }

    fn refused(&self, refusal: Refusal, waited: Duration, entered: &Entered) -> Refused {
        let policy = self.handle.policy();
        let (outcome, error) = match refusal {
            Refusal::Limited(standing) => {
                self.ended(Outcome::Limited, waited, entered);
                return Refused::Limited(Limited::new(&standing, Instant::now()), waited);
            }
            Refusal::Full(waiting) => (Outcome::QueueFull, Error::queue_full(waiting)),
            Refusal::TooCostly => {
                let problem = policy.problem_of_cost(self.cost).unwrap_or_default();
                (Outcome::Invalid, Error::invalid_cost(problem))
            }
            Refusal::Store(error) => (Outcome::from(&error), Error::store(error)),
        };
        self.ended(outcome, waited, entered);
        Refused::Failed(error.by(&policy))
    }

    fn ended(&self, outcome: Outcome, waited: Duration, entered: &Entered) {
        let request = (&self.key, self.cost);
        let current = self.handle.current();
        current.telemetry.ended(entered, request, outcome, waited);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Stage::Waiting(_, since, joined) = &self.stage {
            let (waited, entered) = (since.elapsed(), self.span.enter());
            joined.telemetry.left(&self.key);
            self.ended(Outcome::Cancelled, waited, &entered);
        }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.debug(f, "Acquire")
    }
}

impl fmt::Debug for TryAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.debug(f, "TryAcquire")
    }
}

impl Request {
    fn debug(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        f.debug_struct(name)
            .field("key", &self.key)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

/// Fails if no such request can ever depart.
pub(crate) fn check(policy: &Policy, key: &Key, cost: u32) -> Result<(), Error> {
    if key.as_str().is_empty() {
        return Err(Error::empty_key());
    }
    match policy.problem_of_cost(cost) {
        Some(problem) => Err(Error::invalid_cost(problem)),
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
