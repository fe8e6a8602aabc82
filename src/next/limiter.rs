//! The limiter: [`Limiter`] and [`LimiterBuilder`].

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::acquire::{Acquire, TryAcquire};
use super::peek::Peek;
use crate::dispatcher::Dispatcher;
use crate::dispatcher::{Handle, REMEMBERED_KEYS};
use crate::error::{BuildError, Error};
use crate::key::Key;
use crate::outage::Outage;
use crate::policy::{Policy, PolicyParts};
use crate::quota::Quota;
use crate::recovery::Recovery;
use crate::stores::{MemoryStore, Store};
use crate::telemetry::Settings;

/// Delays requests so that no key departs more often than its quotas allow, in this process and all others that use
/// the same store. Clones share everything.
#[derive(Clone)]
pub struct Limiter {
    handle: Arc<Handle>,
}

impl Limiter {
    /// Starts a limiter.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder {
            store: None,
            embedded: None,
            parts: PolicyParts::default(),
            remembered: REMEMBERED_KEYS,
        }
    }

    /// Waits until a request may depart, behind all that came before it.
    ///
    /// The future is lazy and safe to drop at any time.
    ///
    /// # Errors
    ///
    /// See [`Error`]: the wait would exceed its bound, too many requests wait, the cost is more than the quotas allow,
    /// the key is empty, or the store does not answer.
    pub fn acquire(&self, key: impl Into<Key>) -> Acquire {
        Acquire::new(self.handle.clone(), key.into())
    }

    /// Decides at once whether a request may depart. It never overtakes requests that wait.
    pub fn try_acquire(&self, key: impl Into<Key>) -> TryAcquire {
        TryAcquire::new(self.handle.clone(), key.into())
    }

    /// Runs a function once it may depart.
    ///
    /// # Errors
    ///
    /// Fails as [`acquire`](Self::acquire) does; then the function was not called.
    pub async fn run<F, R>(&self, key: impl Into<Key>, function: F) -> Result<R::Output, Error>
    where
        F: FnOnce() -> R,
        R: Future,
    {
        self.acquire(key).run(function).await
    }

    /// Looks at a key without recording anything.
    pub fn peek(&self, key: impl Into<Key>) -> Peek {
        Peek::new(self.handle.clone(), key.into())
    }

    /// Changes the quotas, for all clones of this limiter at once. Recorded departures still count, and requests that
    /// wait depart under the new quotas. A quota that is counted by another algorithm than before starts from zero.
    ///
    /// # Errors
    ///
    /// Fails as [`build`](LimiterBuilder::build) does; then nothing has changed.
    pub fn set_quotas(&self, quotas: impl IntoIterator<Item = Quota>) -> Result<(), BuildError> {
        let quotas: SmallVec<[Quota; 2]> = quotas.into_iter().collect();
        let parts = PolicyParts {
            quotas,
            ..self.handle.current().parts.clone()
        };
        self.handle.set_plan(parts.plan()?);
        Ok(())
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.handle.policy()
    }

    /// The keys for which requests wait in this process.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.handle.queues()
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policy", &self.policy().id())
            .finish_non_exhaustive()
    }
}

/// Builds a [`Limiter`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct LimiterBuilder {
    store: Option<Arc<dyn Store>>,
    embedded: Option<MemoryStore>,
    parts: PolicyParts,
    remembered: usize,
}

impl LimiterBuilder {
    /// Adds a quota. All hold jointly.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.parts.quotas.push(quota);
        self
    }

    /// Sets the store. Default: a [`MemoryStore`] of its own.
    pub fn store(mut self, store: impl Store) -> Self {
        let any: &dyn Any = &store;
        self.embedded = any.downcast_ref::<MemoryStore>().cloned();
        self.store = Some(Arc::new(store));
        self
    }

    /// Names the policy. Limiters of one name share the departures of a key. Default: none.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.parts.name = Some(name.into());
        self
    }

    /// Extra spacing for the jitter between departure and arrival upstream. Default: none; at most 1 h.
    pub fn buffer(mut self, buffer: Duration) -> Self {
        self.parts.buffer = buffer;
        self
    }

    /// How much later than granted a request may depart. Default: 2% of the shortest window, from 5 ms to 12 ms.
    pub fn guard(mut self, guard: Duration) -> Self {
        self.parts.guard = Some(guard);
        self
    }

    /// The longest wait. Default: any.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.parts.max_wait = Some(max_wait);
        self
    }

    /// The most requests that wait for one key in this process. Default: any number.
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.parts.max_waiting = Some(max_waiting);
        self
    }

    /// Sets the outage policy. Default: [`Outage::Deny`].
    pub fn outage(mut self, outage: Outage) -> Self {
        self.parts.outage = outage;
        self
    }

    /// Sets what is done when the store has lost the state of a key. Default: [`Recovery::Immediate`].
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.parts.recovery = recovery;
        self
    }

    /// The limiter.
    ///
    /// # Errors
    ///
    /// Fails with the field and its value if the policy cannot hold.
    pub fn build(self) -> Result<Limiter, BuildError> {
        let plan = self.parts.clone().plan()?;
        let this = if self.store.is_none() {
            self.store(MemoryStore::new())
        } else {
            self
        };
        let store = this.store.expect("a store is set");
        let dispatcher = Dispatcher::new(store, this.embedded);
        Ok(Limiter {
            handle: Handle::new(&dispatcher, plan, Settings::default(), this.remembered),
        })
    }
}
