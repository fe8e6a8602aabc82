//! The limiter: [`Limiter`] and [`LimiterBuilder`].

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::time::Instant;

use crate::acquire::{Acquire, Cause, Error, TryAcquire};
use crate::algorithm::Command;
use crate::dispatcher::{Dispatcher, Handle, Health};
use crate::error::BuildError;
use crate::guard::micros;
use crate::key::Key;
use crate::policy::{Policy, PolicyParts};
use crate::quota::Quota;
use crate::snapshot::Snapshot;

mod builder;
mod rules;

use self::rules::Live;
pub use self::{builder::LimiterBuilder, rules::ByRules};

/// Delays requests so that no key departs more often than its quotas allow, in this process and all others that use
/// the same store.
///
/// Clones are cheap and share everything: one limiter can serve a reqwest client, a tower service and plain functions
/// at once, and [change its quotas](Self::set_quotas) for all of them.
///
/// A limiter with [rules](crate::rules) chooses the policy by the request. The methods that take only a key use the
/// last rule; [`rule`](Self::rule) chooses another one. [`pause`](Self::pause), [`resume`](Self::resume) and [`reset`](Self::reset)
/// apply to the key under all rules.
///
/// ```
/// use tower_throttle::{Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
/// for _ in 0..20 {
///     let permit = limiter.acquire("api.example.com").await?;
///     println!("departs after {:?}", permit.waited());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    /// One policy for all requests.
    Plain(Arc<Handle>),
    /// The policy of one rule.
    Rule(Arc<Handle>),
    Ruled(Arc<Live>),
}

impl Limiter {
    /// Starts a limiter.
    ///
    /// Defaults: an embedded [`MemoryStore`](crate::store::MemoryStore), no buffer, any wait and any number of waiting
    /// requests. At least one quota is required.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    /// Waits until a request may depart, behind those of its priority and share that came before it.
    ///
    /// The request joins the queue when the future is polled for the first time, not when this method is
    /// called. The future is safe to drop at any time: a departure that was granted to it goes to the next request in
    /// the queue or back to the store. See [`Acquire`] for its cost and its bounds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tower_throttle::{Limiter, Quota};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
    /// let permit = limiter
    ///     .acquire("reports")
    ///     .cost(5)
    ///     .max_wait(Duration::from_secs(30))
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Error`]: the wait would exceed its bound, too many requests wait, the cost is more than the quotas allow,
    /// the key is empty, the store does not answer, or the request would have to wait outside of a tokio runtime.
    ///
    /// # Panics
    ///
    /// The future panics if it has to wait on a runtime without a timer.
    pub fn acquire(&self, key: impl Into<Key>) -> Acquire {
        Acquire::new(self.handle(), key.into())
    }

    /// Decides at once, with the answer of the store, whether a request may depart. It overtakes only requests
    /// of a lower priority that wait. [`Acquire::now`] does the same with a cost.
    ///
    /// A key that is known to be over its limit is refused without a call to the store: see
    /// [`denial_cache`](LimiterBuilder::denial_cache).
    ///
    /// Await it: a tokio task that was refused many times without a pause gets the next refusal after other tasks have run.
    /// In such a task, `now_or_never` may return `None`, and a `block_on` of another crate may hang.
    ///
    /// ```
    /// # use tower_throttle::{Decision, Limiter, Quota};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().quota(Quota::per_second(1)).build()?;
    /// match limiter.try_acquire("reports").await? {
    ///     Decision::Granted(permit) => println!("go, {} more may", permit.remaining()),
    ///     Decision::Limited(limited) => println!("not within {:?}", limited.delay()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Error`]: the cost is more than the quotas allow, the key is empty, or the store does not answer.
    ///
    /// # Panics
    ///
    /// As [`acquire`](Self::acquire) does, if the store has to be called.
    pub fn try_acquire(&self, key: impl Into<Key>) -> TryAcquire {
        self.acquire(key).now()
    }

    /// Runs a function once it may depart. It is in progress until it has returned. [`Acquire::run`] does the same with a cost and
    /// bounds, and does not borrow the limiter, so that it can be spawned.
    ///
    /// ```
    /// # use tower_throttle::{Limiter, Quota};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().quota(Quota::per_second(1)).build()?;
    /// let answer = limiter.run("oracle", || async { 42 }).await?;
    /// assert_eq!(answer, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`acquire`](Self::acquire) does; then the function was not called. It also fails if the function was
    /// dropped, as its [place was lost](crate::ErrorKind::LostPlace).
    ///
    /// # Panics
    ///
    /// As [`acquire`](Self::acquire) does.
    pub async fn run<F, R>(&self, key: impl Into<Key>, function: F) -> Result<R::Output, Error>
    where
        F: FnOnce() -> R,
        R: Future,
    {
        self.acquire(key).run(function).await
    }

    /// Looks at a key without recording anything: when a request could depart, how many more could depart now, and when
    /// all units are available. [`Acquire::peek`] does the same with a cost.
    ///
    /// ```
    /// # use tower_throttle::{Limiter, Quota};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().quota(Quota::per_second(2)).build()?;
    /// limiter.acquire("reports").await?;
    ///
    /// let snapshot = limiter.peek("reports").await?;
    /// assert_eq!(snapshot.remaining(), 1);
    /// assert!(snapshot.delay().is_zero());
    /// assert!(!limiter.acquire("reports").cost(2).peek().await?.delay().is_zero());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`try_acquire`](Self::try_acquire) does, except that a request that names no cost in a unit without a
    /// default cost costs 1 in it.
    ///
    /// This future borrows the limiter; that of [`Acquire::peek`](crate::Acquire::peek) does not.
    ///
    /// # Panics
    ///
    /// As [`try_acquire`](Self::try_acquire) does.
    pub async fn peek(&self, key: impl Into<Key>) -> Result<Snapshot, Error> {
        self.acquire(key).peek().await
    }

    /// Changes the quota, for all clones of this limiter at once; see [`set_quotas`](Self::set_quotas).
    ///
    /// # Errors
    ///
    /// Fails as [`set_quotas`](Self::set_quotas) does.
    pub fn set_quota(&self, quota: Quota) -> Result<(), BuildError> {
        self.set_quotas([quota])
    }

    /// Changes the quotas, for all clones of this limiter at once. The rest of the policy stays.
    ///
    /// Recorded departures still count, and requests that wait depart under the new quotas. Departures that were granted within
    /// the [horizon](crate::guide::exactness) stay granted. A waiting request fails if it costs more than the new quotas allow
    /// at once, or names no cost in a new unit without a default cost.
    ///
    /// A longer window begins with the departures that the shorter one has recorded. Departures are kept between log and buckets,
    /// and among GCRA, spacing and leaky buckets. After another change of the [algorithm](crate::Algorithm), or of the start of
    /// fixed windows, a quota starts from zero. Processes that still have the former quotas apply these to the departures of all: see [exactness](crate::guide::exactness).
    ///
    /// ```
    /// use tower_throttle::{Limiter, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().quota(Quota::per_second(1)).build()?;
    /// let client = limiter.clone();
    /// limiter.set_quotas([Quota::per_second(2), Quota::per_hour(5_000)])?;
    ///
    /// assert!(client.try_acquire("api.example.com").await?.is_granted());
    /// assert!(client.try_acquire("api.example.com").await?.is_granted());
    /// assert!(!client.try_acquire("api.example.com").await?.is_granted());
    ///
    /// let error = limiter.set_quotas([Quota::per_second(0)]).unwrap_err();
    /// assert_eq!(error.to_string(), "quota: `0/s`: the limit is zero");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`build`](LimiterBuilder::build) does, and if the limiter has [rules](crate::rules) or is
    /// [of a rule](Self::rule); then nothing has changed.
    pub fn set_quotas(&self, quotas: impl IntoIterator<Item = Quota>) -> Result<(), BuildError> {
        let Kind::Plain(handle) = &self.kind else {
            return Err(BuildError::set_by_rules("quota"));
        };
        let parts = PolicyParts {
            quotas: quotas.into_iter().collect(),
            ..handle.policy().parts.clone()
        };
        let policy = parts.build().map_err(|errors| errors[0].clone())?;
        handle.set_policy(policy.into());
        Ok(())
    }

    /// The policy: the quotas, and the bounds on waiting. With rules, that of the last rule, whose quota is no real limit if
    /// the rule is exempt.
    pub fn policy(&self) -> Arc<Policy> {
        self.handle().policy()
    }

    /// Whether the store is out, since when and why. An embedded store is never out.
    ///
    /// It is known from the last calls. While the store is out it is probed, with pauses of at most a second.
    ///
    /// ```
    /// use tower_throttle::{Limiter, Quota};
    ///
    /// # let limiter = Limiter::builder().quota(Quota::per_second(1)).build()?;
    /// let health = limiter.health();
    /// if let Some(error) = health.error() {
    ///     println!("the store is out: {error}");
    /// }
    /// # assert!(!health.is_out());
    /// # Ok::<_, tower_throttle::BuildError>(())
    /// ```
    pub fn health(&self) -> Health {
        self.dispatcher().health()
    }

    /// The number of keys for which requests wait in this process or hold a [place](crate::Place), or corrections are unsent; with
    /// rules, of each rule.
    pub fn queues(&self) -> usize {
        self.handles().iter().map(|it| it.key_count()).sum()
    }

    /// Waits until no request of this limiter waits in this process or holds a place, and no correction is left to be sent: until
    /// [`queues`](Self::queues) is 0.
    ///
    /// A process returns places and corrects costs in the background, within milliseconds. If it ends earlier, other processes wait
    /// for its places until their lease ends, and costs stay as they were estimated. So await this for each limiter before the end
    /// of `main`, with a timeout, as the store may be out:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::timeout;
    /// use tower_throttle::{Limiter, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().quota(Quota::concurrent(3)).build()?;
    /// limiter.run("reports", async || ()).await?;
    ///
    /// timeout(Duration::from_secs(1), limiter.idle()).await?;
    /// assert_eq!(limiter.peek("reports").await?.places().map(|places| places.held), Some(0));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn idle(&self) {
        loop {
            let mut idle = pin!(self.dispatcher().idle.notified());
            idle.as_mut().enable();
            if self.queues() == 0 {
                return;
            }
            // The runtime that has called the store so far may have ended.
            self.dispatcher().ensure_task();
            idle.await;
        }
    }

    /// Lets nothing depart for a key until then, in all processes. Requests keep their order.
    ///
    /// The adapters do this when an upstream answers with 429. Requests in this process stop at once, those in others within
    /// the [horizon](crate::guide::exactness) and a round trip. Requests whose bound is earlier than the end of the pause fail.
    /// A longer pause stays as it is. See [`resume`](Self::resume).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tokio::time::Instant;
    /// # use tower_throttle::{Limiter, Quota};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
    /// limiter.pause("api.example.com", Instant::now() + Duration::from_secs(30)).await?;
    /// let permit = limiter.acquire("api.example.com").await?;
    /// assert!(permit.waited() >= Duration::from_secs(30));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the key is empty or the store does not answer. In the latter case, requests that wait in this process
    /// keep to the pause.
    ///
    /// # Panics
    ///
    /// As [`try_acquire`](Self::try_acquire) does.
    pub async fn pause(&self, key: impl Into<Key>, until: Instant) -> Result<(), Error> {
        let span = micros(until.saturating_duration_since(Instant::now()));
        let evidence = u64::MAX;
        self.control(&key.into(), Command::Pause { span, evidence })
            .await
    }

    /// Ends a [pause](Self::pause), and limits that an upstream has announced, in all processes.
    ///
    /// Requests of other processes go on at once where the store notifies them, otherwise within the larger of 1 s and
    /// a third of their expected wait.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tokio::time::Instant;
    /// # use tower_throttle::{Limiter, Quota};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
    /// limiter.pause("api.example.com", Instant::now() + Duration::from_secs(30)).await?;
    /// limiter.resume("api.example.com").await?;
    /// assert!(limiter.try_acquire("api.example.com").await?.is_granted());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the key is empty or the store does not answer.
    ///
    /// # Panics
    ///
    /// As [`try_acquire`](Self::try_acquire) does.
    pub async fn resume(&self, key: impl Into<Key>) -> Result<(), Error> {
        self.control(&key.into(), Command::Resume).await
    }

    /// Forgets all departures of a key, and [pauses](Self::pause) of it, in all processes.
    ///
    /// It also ends limits that an upstream has announced, and a [quarantine](crate::Recovery::Strict). Requests that were granted
    /// within the [horizon](crate::guide::exactness) depart in addition, and requests in progress keep their places.
    ///
    /// ```
    /// # use tower_throttle::{Limiter, Quota};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().quota(Quota::per_hour(1)).build()?;
    /// limiter.acquire("reports").await?;
    /// limiter.reset("reports").await?;
    /// assert!(limiter.try_acquire("reports").await?.is_granted());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the key is empty or the store does not answer.
    ///
    /// # Panics
    ///
    /// As [`try_acquire`](Self::try_acquire) does.
    pub async fn reset(&self, key: impl Into<Key>) -> Result<(), Error> {
        self.control(&key.into(), Command::Reset).await
    }

    async fn control(&self, key: &Key, command: Command) -> Result<(), Error> {
        if key.as_str().is_empty() {
            return Err(Error::new(Cause::EmptyKey, self.policy(), key));
        }
        let handles = self.handles();
        let send = async |handle: &Handle| {
            let report = || handle.load().telemetry.commanded(key, &command);
            // It begins in this process.
            let is_pause = matches!(command, Command::Pause { .. });
            if is_pause {
                report();
            }
            let sent = handle.control(key, command).await;
            if sent.is_ok() && !is_pause {
                report();
            }
            sent.map_err(|error| Error::new(Cause::Store(error), handle.policy(), key))
        };
        let sent = handles.iter().map(|handle| Box::pin(send(handle)));
        let (mut sent, mut answer) = (sent.collect::<Vec<_>>(), Ok(()));
        // They apply to this process at once, and are sent together.
        poll_fn(|cx| {
            sent.retain_mut(|sent| match sent.as_mut().poll(cx) {
                Poll::Ready(sent) => {
                    if answer.is_ok() {
                        answer = sent;
                    }
                    false
                }
                Poll::Pending => true,
            });
            match sent.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        answer
    }

    /// Those of all its policies.
    fn handles(&self) -> Vec<Arc<Handle>> {
        match &self.kind {
            Kind::Plain(handle) | Kind::Rule(handle) => vec![handle.clone()],
            Kind::Ruled(live) => live.dispatcher.handles(),
        }
    }

    fn dispatcher(&self) -> &Arc<Dispatcher> {
        match &self.kind {
            Kind::Plain(handle) | Kind::Rule(handle) => &handle.dispatcher,
            Kind::Ruled(live) => &live.dispatcher,
        }
    }

    /// The handle of requests that have only a key.
    #[inline]
    pub(crate) fn handle(&self) -> Arc<Handle> {
        match &self.kind {
            Kind::Plain(handle) | Kind::Rule(handle) => handle.clone(),
            Kind::Ruled(live) => live.last(),
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policy", &self.policy().label())
            .finish_non_exhaustive()
    }
}
