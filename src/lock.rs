//! Shared values that change: [`Mutex`], a lock without poisoning, and [`Replaceable`].

use std::borrow::Cow;
use std::sync::{self, Arc, MutexGuard, OnceLock, PoisonError};

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

/// A value that is read for each request and replaced rarely, in most programs never. The first value is read without a
/// lock, and kept as long as this. Later ones are read under a lock.
#[derive(Debug)]
pub(crate) struct Replaceable<T> {
    first: Arc<T>,
    latest: OnceLock<Mutex<Arc<T>>>,
}

impl<T> Replaceable<T> {
    pub(crate) fn new(value: T) -> Self {
        let (first, latest) = (Arc::new(value), OnceLock::new());
        Self { first, latest }
    }

    /// The value as it is now.
    #[inline]
    pub(crate) fn load(&self) -> Cow<'_, Arc<T>> {
        match self.latest.get() {
            None => Cow::Borrowed(&self.first),
            Some(latest) => Cow::Owned(latest.lock().clone()),
        }
    }

    pub(crate) fn store(&self, value: T) {
        let value = Arc::new(value);
        let latest = self.latest.get_or_init(|| Mutex::new(value.clone()));
        *latest.lock() = value;
    }
}
