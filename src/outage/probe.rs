//! Asks a store that is out for signs of life.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::time::{sleep, sleep_until};

use super::circuit::{Circuit, FIRST_PAUSE};
use super::health::Health;
use crate::epoch::{Epoch, Shared};
use crate::key::Key;
use crate::store::{Store, StoreError};

impl Epoch {
    /// Why the part of the store that holds this key is not to be asked, if so; sees to it that it is asked
    /// for signs of life.
    #[inline]
    pub(crate) fn outage(self: &Arc<Self>, key: &Key) -> Option<StoreError> {
        if self.circuit.is_closed() {
            return None;
        }
        let part = self.store.part(key);
        let error = self.circuit.error(part)?;
        self.see_to_probe(part, key);
        Some(error)
    }

    /// The same, but leaves it to the caller to [see to](Self::see_to_probe) the signs of life.
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
                    let part = self.store.part(key);
                    // What the part fails with that held the key before says nothing of the one that holds it now.
                    if error.part().is_none_or(|it| it == part) {
                        self.circuit.fail(part, key, error);
                    }
                }
                error.is_outage()
            }
        }
    }

    /// Sees to it that this part of the store, which holds this key, is asked for signs of life, if it is out.
    ///
    /// Not under the lock of a line: a runtime that shuts down drops the task then and there, and who waits is
    /// told. It is the part that whoever asks has found to be out: the key may be in another by now, and then the
    /// task finds out.
    #[cold]
    pub(crate) fn see_to_probe(self: &Arc<Self>, part: u64, key: &Key) {
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

    /// How the store does; sees to it that the parts that are out are asked for signs of life.
    pub(crate) fn health(self: &Arc<Self>) -> Health {
        if !self.circuit.is_closed() {
            let out = self.circuit.parts_out();
            out.iter()
                .for_each(|(part, key)| self.see_to_probe(*part, key));
        }
        self.circuit.health()
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
            let answer = self.store.check(&self.key).await;
            if self.store.part(&self.key) != self.part {
                // Whatever has answered, or has not.
                self.circuit.forget(self.part);
            } else if let Err(error) = answer.as_ref()
                && error.is_outage()
            {
                self.circuit.keep_out(self.part, error);
                continue;
            } else {
                // What else is wrong, the next call is going to say.
                self.circuit.revive(self.part);
            }
            self.is_done = true;
            let (circuit, shared) = (self.circuit.clone(), self.shared.clone());
            drop(self);
            return sweep(circuit, shared).await;
        }
    }

    fn is_wanted(&self) -> bool {
        // In this order, as it is to be forgotten either way.
        let was_wanted = self.circuit.was_wanted(self.part);
        let shared = self.shared.upgrade();
        shared.is_some_and(|shared| was_wanted || shared.lines() > 0)
    }
}

impl Drop for Probe {
    /// Should the runtime shut down: those who wait in others see to it that somebody else asks.
    fn drop(&mut self) {
        if !self.is_done {
            self.circuit.stop_probe(self.part);
            go_on(&self.shared);
        }
    }
}

/// All who wait look again: those whose part is still out see to it that it is asked for signs of life, and sleep on.
fn go_on(shared: &Weak<Shared>) {
    if let Some(shared) = shared.upgrade() {
        shared.epochs().iter().for_each(|epoch| epoch.go_on());
    }
}

/// The same, at once, and after a pause once more for all parts that have come back meanwhile: what that costs does
/// not grow with the number of parts.
async fn sweep(circuit: Arc<Circuit>, shared: Weak<Shared>) {
    if !circuit.begin_sweep() {
        return;
    }
    let mut sweeping = Sweeping {
        circuit,
        shared,
        is_over: false,
    };
    loop {
        go_on(&sweeping.shared);
        sleep(FIRST_PAUSE).await;
        if !sweeping.circuit.repeat_sweep() {
            sweeping.is_over = true;
            return;
        }
    }
}

struct Sweeping {
    circuit: Arc<Circuit>,
    shared: Weak<Shared>,
    is_over: bool,
}

impl Drop for Sweeping {
    /// Should the runtime shut down: others may count on it.
    fn drop(&mut self) {
        if !self.is_over {
            self.circuit.end_sweep();
            go_on(&self.shared);
        }
    }
}
