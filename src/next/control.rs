//! Pauses, and a fresh start for a key.

use tokio::time::Instant;

use super::Limiter;
use crate::error::Error;
use crate::key::Key;
use crate::state::Command;

impl Limiter {
    /// Lets nothing depart for a key until then, in all processes. No request loses its place.
    ///
    /// The adapters do this when an upstream answers with 429. Requests in this process stop at once, those in others
    /// within the horizon of 100 ms and a round trip. Requests whose bound is earlier than the end of the pause fail.
    /// A longer pause stays as it is. See [`resume`](Self::resume).
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
    /// # Errors
    ///
    /// Fails if the key is empty or the store does not answer.
    pub async fn reset(&self, key: impl Into<Key>) -> Result<(), Error> {
        self.control(&key.into(), Command::Reset).await
    }

    async fn control(&self, key: &Key, command: Command) -> Result<(), Error> {
        if key.as_str().is_empty() {
            return Err(Error::empty_key());
        }
        let handle = self.handle();
        handle
            .control(key, command)
            .await
            .map_err(|error| Error::store(error).by(&handle.policy()))
    }
}
