//! A lock without poisoning: [`Mutex`].

use std::sync::{self, MutexGuard, PoisonError};

/// A mutex that a panic does not poison: the panic of one request must not fail all others.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
