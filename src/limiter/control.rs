//! Pauses, and a fresh start for a key.

use tokio::time::Instant;

use super::Limiter;
use crate::acquire::{Cause, Error};
use crate::algorithm::Command;
use crate::key::Key;

impl Limiter {
    /// Lets nothing depart for a key until then, in all processes. No request loses its place.
    ///
    /// The adapters do this when an upstream answers with 429. Requests in this process stop at once, those in others
    /// within the horizon of 100 ms and a round trip. Requests whose bound is earlier than the end of the pause fail.
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
    pub async fn pause(&self, key: impl Into<Key>, until: Instant) -> Result<(), Error> {
        let span = until.saturating_duration_since(Instant::now()).as_micros() as u64;
        let evidence = u64::MAX;
        self.control(&key.into(), Command::Pause { span, evidence })
            .await
    }

    /// Ends a [pause](Self::pause), and limits that an upstream has announced, in all processes.
    ///
    /// Requests of other processes go on at once where the store notifies them, otherwise within the larger of 1 s and
    /// a quarter of their expected wait.
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
    pub async fn resume(&self, key: impl Into<Key>) -> Result<(), Error> {
        self.control(&key.into(), Command::Resume).await
    }

    /// Forgets all departures of a key, and [pauses](Self::pause) of it, in all processes.
    ///
    /// Requests that were granted within the horizon of 100 ms depart in addition.
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
    pub async fn reset(&self, key: impl Into<Key>) -> Result<(), Error> {
        self.control(&key.into(), Command::Reset).await
    }

    async fn control(&self, key: &Key, command: Command) -> Result<(), Error> {
        let handle = self.handle();
        if key.as_str().is_empty() {
            return Err(Error::new(Cause::EmptyKey, handle.policy()));
        }
        let sent = handle.control(key, command).await;
        sent.map_err(|error| Error::new(Cause::Store(error), handle.policy()))
    }
}
