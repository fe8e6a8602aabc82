//! What is said of keys: pauses, and their end.

use tokio::time::Instant;

use super::Limiter;
use crate::error::Error;
use crate::key::Key;
use crate::said::Said;

impl Limiter {
    /// Lets nothing depart for a key until then, in all replicas, and without losing anybody's place.
    ///
    /// For when an upstream has said so, or somebody who watches over it; the adapters do it by themselves
    /// when an upstream [answers](crate::feedback) with 429. Those who wait keep their order and go on
    /// waiting, also those who hold slots already: in this process they stop at once, in others when
    /// word of it reaches them, which takes about as long as a round trip to the store, or at most half a
    /// second where the store [does not tell](crate::store::Store::is_listening). After the pause, requests depart as the
    /// quotas allow. Those whose bound on waiting ends before are refused.
    ///
    /// A pause is kept with the state of the quotas that are set now; if they
    /// [change](Self::set_quotas), this limiter keeps to it all the same, while it is among the 10,000 keys
    /// whose pauses are remembered. A pause that is longer already stays as it is. To end one, see
    /// [`resume`](Self::resume).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tokio::time::Instant;
    /// # use tower_throttle::{Limiter, Quota};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().quota(Quota::per_second(10)).build()?;
    /// limiter.pause("api.example.com", Instant::now() + Duration::from_secs(30)).await?;
    /// let permit = limiter.acquire("api.example.com").await?;
    /// assert!(permit.waited() >= Duration::from_secs(30));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the key is empty or the store does not answer. In the latter case, those who wait for the key
    /// in this process keep to the pause, if they know the store's clock.
    ///
    /// # Panics
    ///
    /// As for [`try_acquire`](Self::try_acquire).
    pub async fn pause(&self, key: impl Into<Key>, until: Instant) -> Result<(), Error> {
        self.heed(key.into(), Said::pause(until)).await
    }

    /// Ends a [pause](Self::pause), and whatever else an upstream has said of a key, for all replicas.
    ///
    /// Those who wait with slots behind the end of the pause give them back, and ask for others a sixth of a
    /// second later, when all replicas have done so. A pause of quotas that have [changed](Self::set_quotas)
    /// since, and that nobody waits by any more, comes back with them.
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
    /// As for [`try_acquire`](Self::try_acquire).
    pub async fn resume(&self, key: impl Into<Key>) -> Result<(), Error> {
        self.heed(key.into(), Said::Resume).await
    }

    pub(crate) async fn heed(&self, key: Key, said: Said) -> Result<(), Error> {
        self.epochs().current().heed(&key, said).await
    }
}
