//! Shared values that change: [`Mutex`], a lock without poisoning, and [`Replaceable`].

use std::ops::Deref;
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

/// The value at the time when it was read.
pub(crate) enum Loaded<'a, T> {
    First(&'a Arc<T>),
    Later(Arc<T>),
}

impl<T> Replaceable<T> {
    pub(crate) fn new(value: T) -> Self {
        let (first, latest) = (Arc::new(value), OnceLock::new());
        Self { first, latest }
    }

    #[inline]
    pub(crate) fn load(&self) -> Loaded<'_, T> {
        match self.latest.get() {
            None => Loaded::First(&self.first),
            Some(latest) => Loaded::Later(latest.lock().clone()),
        }
    }

    pub(crate) fn store(&self, value: T) {
        let value = Arc::new(value);
        let latest = self.latest.get_or_init(|| Mutex::new(value.clone()));
        *latest.lock() = value;
    }
}

impl<T> Deref for Loaded<'_, T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        match self {
            Self::First(value) => value,
            Self::Later(value) => value,
        }
    }
}
