//! What a request asks for its departure: [`Limiter`].

use std::fmt;
use std::sync::Arc;

use crate::acquire::{Acquire, TryAcquire};
use crate::epoch::Epochs;
use crate::error::{BuildError, Error};
use crate::key::Key;
use crate::outage::Health;
use crate::peek::Peek;
use crate::policy::Policy;
use crate::quota::Quota;
use crate::rules::Live;
use crate::said::Said;

mod builder;
mod pause;
mod ruled;

pub use self::builder::LimiterBuilder;

/// Delays requests so that no key departs more often than its quotas allow, in this process and all
/// others that use the same store.
///
/// Clones are cheap and share everything, so one limiter can serve a reqwest client, a tower
/// service and plain functions at once, and [change its quotas](Self::set_quotas) for all of them.
///
/// Where it goes by [rules](crate::rules), those say which policy a request has. Whatever takes a key alone here, goes by the
/// last of them: for another see [`rule`](Self::rule).
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
    /// It goes by one policy, for whatever request.
    Plain(Epochs),
    /// It goes by rules.
    Ruled(Arc<Live>),
}

impl Limiter {
    /// Starts a limiter.
    ///
    /// Defaults: an embedded [`MemoryStore`](crate::store::MemoryStore), no buffer, any wait and any length of line; at least
    /// one quota has to be given.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::new()
    }

    /// Waits until a request may depart, behind all that came before it.
    ///
    /// The future is lazy and safe to drop at any time: a slot that was reserved for it goes to the
    /// next in line or back to the store. Its [cost](Acquire::cost) and the longest wait can be set.
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
    /// See [`Error`]: the wait would exceed its bound, the line is too long, the cost is more than
    /// the quotas hold, the key is empty, or the store does not answer.
    ///
    /// # Panics
    ///
    /// The future panics if it has to wait outside of a tokio runtime with its timer enabled. All
    /// runtimes that wait on one limiter at the same time have to be running, as one of them serves
    /// the line of a key for all.
    pub fn acquire(&self, key: impl Into<Key>) -> Acquire {
        Acquire::new(self.epochs(), key.into())
    }

    /// Decides at once whether a request may depart, without waiting for a slot.
    ///
    /// It never overtakes those who wait. A key that is known to be over its limit is refused without
    /// asking the store, until the moment that the store named: see
    /// [`denial_cache`](LimiterBuilder::denial_cache).
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
    /// See [`Error`]: the cost is more than the quotas hold, the key is empty, or the store does not
    /// answer.
    ///
    /// # Panics
    ///
    /// The future panics if it has to ask the store outside of a tokio runtime with its timer enabled.
    pub fn try_acquire(&self, key: impl Into<Key>) -> TryAcquire {
        TryAcquire::new(self.epochs(), key.into())
    }

    /// Runs a function once it may depart: any function, with any result. At another cost, or within a bound:
    /// [`Acquire::run`].
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
    /// As for [`acquire`](Self::acquire); then the function was not called.
    pub async fn run<F, R>(&self, key: impl Into<Key>, function: F) -> Result<R::Output, Error>
    where
        F: FnOnce() -> R,
        R: Future,
    {
        self.acquire(key).run(function).await
    }

    /// Looks at how a key stands, without spending anything: when a request could depart, how many
    /// more could now, and when all may.
    ///
    /// It is how the store knows it, at that moment. Those who wait in this process without a slot yet
    /// are not counted: that is for as long as one call to the store takes. Nor does the delay tell
    /// the place in this process's line, where all move up when one leaves.
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
    /// assert!(!limiter.peek("reports").cost(2).await?.delay().is_zero());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`try_acquire`](Self::try_acquire).
    ///
    /// # Panics
    ///
    /// As for [`try_acquire`](Self::try_acquire).
    pub fn peek(&self, key: impl Into<Key>) -> Peek {
        Peek::new(self.epochs(), key.into())
    }

    /// Forgets all departures of a key, for all replicas: as many may follow as the quotas allow. A
    /// [pause](Self::pause) is forgotten, too.
    ///
    /// Requests that hold a slot already, here or in other processes, keep it and depart besides, or give
    /// it to others; where [recovery](crate::Recovery::Strict) is strict, they ask anew. Only the quotas that are
    /// set now start anew, see [`set_quotas`](Self::set_quotas).
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
    /// As for [`try_acquire`](Self::try_acquire).
    pub async fn reset(&self, key: impl Into<Key>) -> Result<(), Error> {
        let (key, epoch) = (key.into(), self.epochs().current());
        // Others have heard of a pause, too.
        epoch.heed(&key, Said::Resume).await?;
        if let Some(stand_in) = &epoch.stand_in {
            let reply = stand_in.store.reset(&key, &stand_in.policy).await;
            reply.map_err(Error::store)?;
        }
        let reply = epoch.forget(&key).await;
        epoch.forget_denial(&key);
        reply.map_err(Error::store)
    }

    /// Changes the quota, for all clones of this limiter at once.
    ///
    /// As [`set_quotas`](Self::set_quotas) with this one alone: it takes the place of all that held
    /// jointly.
    ///
    /// ```
    /// # use tower_throttle::{BuildError, Limiter, Quota};
    /// # fn main() -> Result<(), BuildError> {
    /// # let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
    /// limiter.set_quota(Quota::per_second(20))?;
    /// assert_eq!(limiter.policy().quotas(), [Quota::per_second(20)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`set_quotas`](Self::set_quotas); then nothing has changed.
    pub fn set_quota(&self, quota: Quota) -> Result<(), BuildError> {
        self.set_quotas([quota])
    }

    /// Changes the quotas, which hold jointly, for all clones of this limiter at once.
    ///
    /// For when an API announces another limit, or a configuration is read anew: requests made from
    /// then on depart by the new quotas. The rest of the policy stays as it was built, the guard too if
    /// one was set; else it becomes the new quotas' default.
    ///
    /// A request is made when its future is first polled, and keeps the quotas that are set then until
    /// it departs, even if it has to reserve another slot. So those who wait stay in their line and
    /// keep their slots, and what they give back returns to the quotas it came from.
    ///
    /// Each set of quotas has a state of its own, named by [`Policy::id`]. Changed quotas start
    /// clean, and quotas that are set once more find what is left of their state and their line. So
    /// until the last of the old line has departed, and for one window more, requests depart by the
    /// old quotas beside those by the new, up to the sum of both;
    /// [`max_wait`](LimiterBuilder::max_wait) bounds how long the line is. Other processes keep their
    /// quotas until they are told, and count separately until then.
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
    /// assert_eq!(error.to_string(), "quota `0/s`: the limit is zero");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`build`](LimiterBuilder::build) does, with the name of what is wrong and its value;
    /// then nothing has changed.
    pub fn set_quotas(&self, quotas: impl IntoIterator<Item = Quota>) -> Result<(), BuildError> {
        match &self.kind {
            Kind::Plain(epochs) => epochs.set_quotas(quotas.into_iter().collect()),
            Kind::Ruled(_) => Err(BuildError::said_by_rules()),
        }
    }

    /// The quotas that are set, and the bounds on waiting.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.epochs().current().policy.clone()
    }

    /// How this limiter stands with its store: whether it is out, since when and why.
    ///
    /// An embedded store is never out. It is what the last calls have shown. While the store is out, this has it
    /// asked for a sign of life, as a request would, where there is a runtime: so a readiness check that asks for
    /// nothing else, and lets no requests through until the store is back, learns of that by the next time or the one
    /// after.
    ///
    /// ```
    /// # use tower_throttle::{Limiter, Quota};
    /// # let limiter = Limiter::builder().quota(Quota::per_second(1)).build()?;
    /// let health = limiter.health();
    /// if let Some(error) = health.error() {
    ///     println!("the store is out: {error}");
    /// }
    /// # assert!(!health.is_out());
    /// # Ok::<_, tower_throttle::BuildError>(())
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        match &self.kind {
            Kind::Plain(epochs) => epochs.health(),
            Kind::Ruled(live) => live.health(),
        }
    }

    /// For how many keys somebody waits, in this process; those who wait by quotas that have
    /// [changed](Self::set_quotas) since count apart.
    #[must_use]
    pub fn lines(&self) -> usize {
        match &self.kind {
            Kind::Plain(epochs) => epochs.lines(),
            Kind::Ruled(live) => live.lines(),
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.epochs().current().fmt(f)
    }
}
