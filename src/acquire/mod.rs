//! Waiting for a permit: the futures [`Acquire`] and [`TryAcquire`].

mod error;

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::coop;
use tokio::time::Instant;

use crate::algorithm::{Costs, Mode};
use crate::cost::Cost;
use crate::dispatcher::{Current, Granted, Handle, Place, Position, Waiting};
use crate::key::{Key, NoKey, NoKeyCause};
use crate::permit::{Decision, Permit};
use crate::policy::Policy;
use crate::priority::{Priority, Rank, Share};
use crate::queue::{Refusal, Standing};
use crate::snapshot::Snapshot;
use crate::telemetry::{Outcome, Span};

pub(crate) use self::error::Cause;
pub use self::error::{Error, ErrorKind};

/// Waits until a request may depart; see [`Limiter::acquire`](crate::Limiter::acquire).
///
/// Defaults: the [default cost](crate::Quota::default_cost) of the quotas, and the policy's
/// [`max_wait`](crate::LimiterBuilder::max_wait).
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire {
    /// A permit takes over the handle and the key.
    handle: Option<Arc<Handle>>,
    /// Empty if the request has none.
    pub(crate) key: Key,
    pub(crate) cost: Cost,
    pub(crate) rank: Rank,
    max_wait: Option<Duration>,
    deadline: Option<Instant>,
    pub(crate) progress: Progress,
}

pub(crate) enum Progress {
    New,
    /// An extractor has found no key.
    NoKey(Box<NoKey>),
    /// It has the position that it had when it got a permit that expired.
    Again(Box<Position>),
    Joined(Box<Waiting>),
    /// It was refused, and other tasks run before its task learns of that.
    Refused(Box<Cause>),
}

impl Acquire {
    #[inline]
    pub(crate) fn new(handle: Arc<Handle>, key: Key) -> Self {
        Self {
            handle: Some(handle),
            key,
            cost: Cost::default(),
            rank: Rank::default(),
            max_wait: None,
            deadline: None,
            progress: Progress::New,
        }
    }

    /// Waits once more, in the position that the request had when it got this permit. Its bounds stay as they were.
    pub(crate) fn again(&mut self, expired: Permit) {
        let position = expired.handle.former_position(expired.granted.position);
        self.progress = Progress::Again(Box::new(position));
        expired.handle.forfeit(&expired.key, expired.granted);
        (self.handle, self.key) = (Some(expired.handle), expired.key);
    }

    fn handle(&self) -> &Arc<Handle> {
        self.handle.as_ref().expect("polled after it was ready")
    }

    /// Sets what the request costs, by default what the [quotas](crate::Quota::default_cost) say: up to what they allow at
    /// once. All of it departs at once. Costs that were set before are replaced.
    ///
    /// ```
    /// use tower_throttle::{Cost, Limiter, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder()
    ///     .quota(Quota::per_minute(600))
    ///     .quota(Quota::per_minute(100_000).unit("tokens"))
    ///     .build()?;
    /// limiter.acquire("api").cost(Cost::default().of("tokens", 1_200)).await?;
    /// assert_eq!(limiter.peek("api").await?.remaining_of("tokens"), Some(98_800));
    /// # Ok(())
    /// # }
    /// ```
    pub fn cost(mut self, cost: impl Into<Cost>) -> Self {
        self.cost = cost.into();
        self
    }

    /// Sets what the request costs in one unit.
    pub fn cost_of(mut self, unit: &'static str, cost: u32) -> Self {
        self.cost.set(unit, cost);
        self
    }

    /// Sets which requests of the same key it departs before. Default: [`Priority::Normal`].
    ///
    /// ```
    /// use tower_throttle::{Limiter, Priority, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().quota(Quota::per_second(1)).build()?;
    /// limiter.acquire("api").await?;
    /// let batch = tokio::spawn(limiter.acquire("api").priority(Priority::Low));
    /// tokio::task::yield_now().await;
    /// limiter.acquire("api").priority(Priority::High).await?;
    /// assert!(!batch.is_finished());
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.rank.priority = priority;
        self
    }

    /// Sets its [`Share`]: with others of this name, it gets capacity in proportion to the weight, among the requests of the
    /// same key and priority. Default: none.
    ///
    /// ```
    /// # use tower_throttle::{Limiter, Quota};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
    /// limiter.acquire("api").share("tenant-a", 3).await?;
    /// limiter.acquire("api").share("tenant-b", 1).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn share(mut self, name: impl AsRef<str>, weight: u32) -> Self {
        self.rank.share = Some(Share::new(name, weight));
        self
    }

    /// Fails, mostly at once, if the request would have to wait longer, unless the policy is stricter. For a
    /// [place](crate::Quota::concurrent), whose wait is unknown, it waits so long. If set several
    /// times, the least counts.
    #[inline]
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(self.max_wait.map_or(max_wait, |it| it.min(max_wait)));
        self
    }

    /// Fails, mostly at once, if the request could not depart by then; for a [place](crate::Quota::concurrent), it waits until
    /// then. A request that may depart now does so even if the deadline has passed. If set several times, the earliest counts.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |it| it.min(deadline)));
        self
    }

    /// Runs a function once it may depart. If a quota limits how many requests are in progress, this is one until the
    /// function has returned.
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
    /// Fails as [`Limiter::acquire`](crate::Limiter::acquire) does; then the function was not called. It also fails if the
    /// function was dropped, as its [place was lost](crate::ErrorKind::LostPlace).
    ///
    /// # Panics
    ///
    /// As [`Limiter::acquire`](crate::Limiter::acquire) does.
    pub async fn run<F, R>(self, function: F) -> Result<R::Output, Error>
    where
        F: FnOnce() -> R,
        R: Future,
    {
        self.await?.hold().run(function()).await
    }

    /// Decides at once whether the request may depart, whatever its bounds are; see
    /// [`Limiter::try_acquire`](crate::Limiter::try_acquire), also for errors.
    ///
    /// ```
    /// # use tower_throttle::{Limiter, Quota};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
    /// assert!(limiter.acquire("oracle").cost(10).now().await?.is_granted());
    /// assert!(!limiter.acquire("oracle").cost(5).now().await?.is_granted());
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn now(self) -> TryAcquire {
        TryAcquire(self.max_wait(Duration::ZERO))
    }

    /// Looks when such a request could depart, without recording anything; see
    /// [`Limiter::peek`](crate::Limiter::peek). Its bounds have no effect. Waiting requests of lower priority are not ahead
    /// of it.
    ///
    /// # Errors
    ///
    /// Fails as [`Limiter::try_acquire`](crate::Limiter::try_acquire) does, except that a request that names no cost in a unit
    /// without a default cost costs 1 in it.
    ///
    /// # Panics
    ///
    /// As [`Limiter::try_acquire`](crate::Limiter::try_acquire) does.
    pub async fn peek(self) -> Result<Snapshot, Error> {
        let (handle, key) = (self.handle(), &self.key);
        let policy = handle.policy();
        let fail = |cause| Error::new(cause, policy.clone(), key);
        let cost = self.checked_cost(&policy, Some(1)).map_err(fail)?;
        let snapshot = handle.peek(key, cost, &self.rank).await;
        snapshot.map_err(|error| fail(Cause::Store(error)))
    }
}

impl Place {
    /// Does work that holds the place, and releases it.
    ///
    /// # Errors
    ///
    /// With [`Lost::Abort`](crate::Lost::Abort), it fails with [`ErrorKind::LostPlace`](crate::ErrorKind::LostPlace) if the
    /// place is lost. The work is dropped then.
    pub async fn run<F: Future>(mut self, work: F) -> Result<F::Output, Error> {
        self.ensure_task();
        unless_lost(work, |cx| self.poll_lost(cx)).await
    }
}

/// Does work to its end. Fails once its place is lost; the work is dropped then.
pub(crate) async fn unless_lost<F: Future>(
    work: F,
    mut poll_lost: impl FnMut(&mut Context<'_>) -> Poll<(Arc<Policy>, Key)>,
) -> Result<F::Output, Error> {
    let mut work = pin!(work);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => poll_lost(cx).map(|it| Err(Error::lost_place(it))),
    })
    .await
}

impl Future for Acquire {
    type Output = Result<Permit, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_permit(cx, |permit| permit, |this, cause| Err(this.error(cause)))
    }
}

/// Decides at once; see [`Acquire::now`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct TryAcquire(Acquire);

impl Future for TryAcquire {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let refused = |this: &Acquire, cause| match cause {
            Cause::TooLong { snapshot, .. } => Ok(Decision::Limited(snapshot)),
            cause => Err(this.error(cause)),
        };
        self.0.poll_permit(cx, Decision::Granted, refused)
    }
}

impl Acquire {
    /// Most requests depart at once: what these need is inlined, and builds the result in place, as moving a permit takes
    /// longer than the rest.
    #[inline(always)]
    fn poll_permit<T>(
        &mut self,
        cx: &mut Context<'_>,
        granted: impl FnOnce(Permit) -> T,
        refused: impl FnOnce(&Self, Cause) -> Result<T, Error>,
    ) -> Poll<Result<T, Error>> {
        match &self.progress {
            Progress::Joined(_) => {}
            Progress::Refused(_) => return self.poll_refused(cx).map(|it| refused(self, it)),
            _ => match self.start() {
                Ok(Some(departs)) => return Poll::Ready(Ok(granted(self.permit(departs)))),
                Ok(None) => {}
                Err(cause) => return self.refuse(cause, cx).map(|it| refused(self, it)),
            },
        }
        match ready!(self.poll_joined(cx)) {
            Ok(permit) => Poll::Ready(Ok(granted(permit))),
            Err(cause) => self.refuse(cause, cx).map(|it| refused(self, it)),
        }
    }

    /// Ends a request that is refused. A task that asks again after each refusal, without a pause, lets others run now and then.
    #[cold]
    fn refuse(&mut self, cause: Cause, cx: &mut Context<'_>) -> Poll<Cause> {
        match coop::poll_proceed(cx) {
            Poll::Ready(coop) => {
                coop.made_progress();
                Poll::Ready(cause)
            }
            Poll::Pending => {
                self.progress = Progress::Refused(Box::new(cause));
                Poll::Pending
            }
        }
    }

    /// Polls a request whose refusal had to wait until other tasks have run.
    #[cold]
    fn poll_refused(&mut self, cx: &mut Context<'_>) -> Poll<Cause> {
        let Progress::Refused(cause) = mem::replace(&mut self.progress, Progress::New) else {
            unreachable!("it was refused");
        };
        self.refuse(*cause, cx)
    }

    /// Departs at once, joins the queue, or fails.
    #[inline(always)]
    fn start(&mut self) -> Result<Option<Granted>, Cause> {
        let (handle, key, now) = (self.handle(), &self.key, Instant::now());
        let position = match &self.progress {
            Progress::Again(former) => **former,
            _ => Position::new(now, &self.rank),
        };
        let current = handle.load();
        let span = current.telemetry.begin(key, self.cost.requests());
        let entered = span.enter();
        let joined = match self.checked_cost(&current.policy, None) {
            Ok(cost) => match handle.depart_at_once(&current, key, cost, position, now) {
                Some(Ok(granted)) => {
                    drop(entered);
                    self.report_departure(&current, span, &granted);
                    return Ok(Some(granted));
                }
                at_once => {
                    let standing = at_once.and_then(Result::err);
                    self.join(&current, cost, standing, position, now)
                }
            },
            Err(cause) => Err(cause),
        };
        drop(entered);
        match joined {
            Ok(mut waiting) => {
                waiting.span = span;
                drop(current);
                self.progress = Progress::Joined(Box::new(waiting));
                Ok(None)
            }
            Err(cause) => {
                let waited = now - position.arrival.at;
                (current.telemetry).ended(span, key, cause.outcome(), waited, None);
                Err(cause)
            }
        }
    }

    /// Polls a request that has joined the queue.
    #[cold]
    fn poll_joined(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Cause>> {
        let Progress::Joined(joined) = &mut self.progress else {
            unreachable!("it has joined");
        };
        let _entered = joined.span.enter();
        let result = ready!(Pin::new(&mut **joined).poll(cx));
        let (arrival, span) = (joined.position.arrival.at, mem::take(&mut joined.span));
        self.progress = Progress::New;
        let current = self.handle().load();
        Poll::Ready(match result {
            Ok(granted) => {
                self.report_departure(&current, span, &granted);
                drop(current);
                Ok(self.permit(granted))
            }
            Err(refusal) => {
                let now = Instant::now();
                let waited = now.saturating_duration_since(arrival);
                let cause = self.cause_of(&current.policy, refusal, now, waited);
                (current.telemetry).ended(span, &self.key, cause.outcome(), waited, None);
                Err(cause)
            }
        })
    }

    /// The cost of the request in each unit. `otherwise` is that in units in which it names none, and which have no default
    /// cost. Fails if the request can never depart.
    #[inline]
    fn checked_cost(&self, policy: &Policy, otherwise: Option<u32>) -> Result<Costs, Cause> {
        if self.key.as_str().is_empty() {
            return Err(match &self.progress {
                Progress::NoKey(no_key) => Cause::NoKey((**no_key).clone()),
                _ => Cause::EmptyKey,
            });
        }
        if let Some(problem) = self.rank.share.as_ref().and_then(Share::problem) {
            return Err(Cause::InvalidShare(problem));
        }
        let costs = policy.costs_of(&self.cost, otherwise);
        costs.map_err(Cause::InvalidCost)
    }

    /// Joins the queue, unless the request is refused at once. `refused` is the answer of the embedded store, if it has one.
    fn join(
        &self,
        current: &Current,
        cost: Costs,
        refused: Option<Standing>,
        position: Position,
        now: Instant,
    ) -> Result<Waiting, Cause> {
        let (handle, key) = (self.handle(), &self.key);
        let bound = self.bound(&current.policy, position.arrival.at);
        // With an earlier bound, it departs by the answer to the first call or not at all.
        let answered = now + handle.guard.round_trip();
        let waits = bound.is_none_or(|bound| answered < bound);
        let denied = refused.filter(|_| !waits).or_else(|| {
            let denied = handle.denials.find(key, &cost, &self.rank, bound, now);
            denied.inspect(|_| current.telemetry.remembered())
        });
        let joined = match denied {
            Some(standing) => Err(Refusal::Limited(standing)),
            None => {
                let (mode, bound) = match waits {
                    true => (Mode::Wait, bound),
                    false => (Mode::Try, None),
                };
                handle.join(mode, key, &self.cost, &self.rank, position, bound)
            }
        };
        joined.map_err(|it| self.cause_of(&current.policy, it, now, now - position.arrival.at))
    }

    /// The time by which a request has to depart that arrived at this time.
    fn bound(&self, policy: &Policy, arrival: Instant) -> Option<Instant> {
        let leaky = policy.leaky_wait(&self.handle().guard);
        let bounds = self.max_wait.into_iter().chain(policy.max_wait());
        let longest = bounds.chain(leaky).min();
        let until = longest.and_then(|longest| arrival.checked_add(longest));
        until.into_iter().chain(self.deadline).min()
    }

    fn cause_of(&self, policy: &Policy, refusal: Refusal, now: Instant, waited: Duration) -> Cause {
        match refusal {
            Refusal::Limited(standing) => Cause::TooLong {
                waited,
                snapshot: Snapshot::new(&standing, now),
            },
            Refusal::Full(waiting, standing) => Cause::QueueFull {
                waiting,
                snapshot: standing.map(|standing| Snapshot::new(&standing, now)),
            },
            Refusal::TooCostly => {
                let problem = policy.costs_of(&self.cost, None).err();
                Cause::InvalidCost(problem.unwrap_or_default())
            }
            Refusal::Store(error) => Cause::Store(error),
        }
    }

    /// Reports that the request departs.
    #[inline(always)]
    fn report_departure(&self, current: &Current, span: Span, granted: &Granted) {
        let outcome = match granted.turn.is_counted() {
            true => Outcome::Granted,
            false => Outcome::Fallback,
        };
        let departs = Some((&granted.turn, &self.rank));
        (current.telemetry).ended(span, &self.key, outcome, granted.waited, departs);
    }

    /// The permit takes over the handle and the key.
    #[inline(always)]
    fn permit(&mut self, granted: Granted) -> Permit {
        let handle = self.handle.take().expect("polled after it was ready");
        let is_counted = handle.load().policy.counts(granted.turn.is_counted());
        Permit {
            handle,
            is_counted,
            key: self.key.take(),
            granted,
        }
    }

    #[cold]
    fn error(&self, cause: Cause) -> Error {
        let current = self.handle().load();
        if let Cause::NoKey(no_key) = &cause
            && no_key.cause == NoKeyCause::Server
        {
            current.telemetry.lacks_key(&no_key.reason);
        }
        Error::new(cause, current.policy.clone(), &self.key)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limiter, Quota};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_earliest_bound_holds_in_any_order() {
        let quota = Quota::per_second(1);
        let limiter = Limiter::builder().quota(quota).build().unwrap();
        for (max_wait, deadline, is_granted) in [(3, 3, true), (0, 3, false), (3, 0, false)] {
            for is_first in [true, false] {
                limiter.reset("a").await.unwrap();
                limiter.acquire("a").await.unwrap();
                let (max_wait, deadline) = (max_wait * SECOND, Instant::now() + deadline * SECOND);
                let asks = limiter.acquire("a");
                let asks = match is_first {
                    true => asks.max_wait(max_wait).deadline(deadline),
                    false => asks.deadline(deadline).max_wait(max_wait),
                };
                // A later bound changes nothing.
                let asks = asks.deadline(deadline + SECOND).max_wait(4 * SECOND);
                assert_eq!(asks.await.is_ok(), is_granted);
            }
        }
    }

    #[tokio::test]
    async fn a_task_that_asks_again_and_again_lets_others_run() {
        let quota = Quota::new(1, SECOND / 10);
        let limiter = Limiter::builder().quota(quota).build().unwrap();
        limiter.acquire("a").await.unwrap();
        let other = limiter.clone();
        let waits = tokio::spawn(async move { other.acquire("a").await.map(drop) });
        tokio::task::yield_now().await;
        while !waits.is_finished() {
            // On a busy machine, it may get the departure of a request that is polled late.
            let _ = limiter.try_acquire("a").await.unwrap();
        }
        waits.await.unwrap().unwrap();
    }
}
