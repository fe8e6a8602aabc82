//! Asks a store that is out for signs of life.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::time::sleep_until;

use super::Circuit;
use crate::epoch::{Epoch, Shared};
use crate::key::Key;
use crate::store::{Store, StoreError};

impl Epoch {
    /// Why the part of the store that holds this key is not to be asked, if so; sees to it that it is asked
    /// for signs of life.
    #[inline]
    pub(crate) fn outage(self: &Arc<Self>, key: &Key) -> Option<StoreError> {
        let error = self.known_outage(key)?;
        self.see_to_probe(key);
        Some(error)
    }

    /// The same, but leaves it to the caller to [see to](Self::see_to_probe) the signs of life, as that must
    /// not be done under the lock of a line: a runtime that shuts down drops the task then and there, and who
    /// waits is told.
    #[inline]
    pub(crate) fn known_outage(&self, key: &Key) -> Option<StoreError> {
        if self.circuit.is_closed() {
            return None;
        }
        self.circuit.error(self.store.part(key))
    }

    /// A call about this key was answered, or has failed: whether that is an outage.
    #[inline]
    pub(crate) fn heard_of(&self, key: &Key, error: Option<&StoreError>) -> bool {
        match error {
            None if self.circuit.is_closed() => false,
            None => {
                self.circuit.answer(self.store.part(key));
                false
            }
            Some(error) => {
                if error.is_outage() {
                    self.circuit.fail(self.store.part(key), error);
                }
                error.is_outage()
            }
        }
    }

    /// Sees to it that the part of the store that holds this key is asked for signs of life, if it is out.
    #[cold]
    pub(crate) fn see_to_probe(self: &Arc<Self>, key: &Key) {
        let part = self.store.part(key);
        if let Ok(runtime) = Handle::try_current()
            && self.circuit.wants_probe(part)
        {
            let probe = Probe {
                circuit: self.circuit.clone(),
                store: self.store.clone(),
                shared: Arc::downgrade(self.shared()),
                part,
                key: key.clone(),
                is_done: false,
            };
            runtime.spawn(probe.run());
        }
    }
}

/// Asks one part of a store for signs of life, until it gives one or nobody needs it.
struct Probe {
    circuit: Arc<Circuit>,
    store: Arc<dyn Store>,
    /// Whom it asks for.
    shared: Weak<Shared>,
    part: u64,
    /// Any that the part holds.
    key: Key,
    is_done: bool,
}

impl Probe {
    async fn run(mut self) {
        while let Some(next) = self.circuit.next_probe(self.part) {
            sleep_until(next).await;
            if !self.is_wanted() {
                // Whoever wanted something at this very moment looks again, by whatever drops this.
                return;
            }
            match self.store.check(&self.key).await {
                Err(error) if error.is_outage() => self.circuit.keep_out(self.part, &error),
                // What else is wrong, the next call is going to say.
                Ok(()) | Err(_) => {
                    self.is_done = true;
                    self.circuit.revive(self.part);
                    self.go_on();
                    return;
                }
            }
        }
    }

    fn is_wanted(&self) -> bool {
        // In this order, as it is to be forgotten either way.
        let was_wanted = self.circuit.was_wanted(self.part);
        let shared = self.shared.upgrade();
        shared.is_some_and(|shared| was_wanted || shared.lines() > 0)
    }

    /// All who wait look again.
    fn go_on(&self) {
        if let Some(shared) = self.shared.upgrade() {
            let is_back = self.circuit.error(self.part).is_none();
            let epochs = shared.epochs().into_iter();
            epochs.for_each(|epoch| epoch.go_on(self.part, is_back));
        }
    }
}

impl Drop for Probe {
    /// Should the runtime shut down: those who wait in others see to it that somebody else asks.
    fn drop(&mut self) {
        if !self.is_done {
            self.circuit.stop_probe(self.part);
            self.go_on();
        }
    }
}
