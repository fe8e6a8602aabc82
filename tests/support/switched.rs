//! A store that can be switched off, wholly or in part: [`Switched`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::sleep;
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::{
    Listen, MemoryStore, Notice, Release, Reply, Reserve, Reserved, Store, StoreError, Word,
};

/// How long each answer takes, and the lack of one.
const LATENCY: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_secs(1);

/// More often than anybody who does not look without end asks whether it tells.
const OFTEN: u64 = 10_000;

/// What it does when it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Works,
    /// Nobody listens.
    Refuses,
    /// Nobody answers; what was asked for is recorded all the same.
    Hangs,
    /// It gives signs of life, and refuses everything else.
    IsReadOnly,
    /// It gives signs of life, and panics at the first hundred other calls.
    Panics,
}

/// An embedded store that is asked as if it were far away. Keys that start with `other` are in a part of
/// their own, which always works.
#[derive(Debug, Clone, Default)]
pub(crate) struct Switched(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    store: MemoryStore,
    mode: Mutex<Option<Mode>>,
    checks: AtomicU64,
    asked: AtomicU64,
    is_quiet: AtomicBool,
    seen_to: AtomicU64,
}

impl Switched {
    pub(crate) fn switch(&self, mode: Mode) {
        *self.0.mode.lock().expect("no panic") = Some(mode);
    }

    /// Does not tell what is said of keys, and minds how often it is asked whether it does: whoever serves a line
    /// asks each time that it wakes.
    pub(crate) fn quiet() -> Self {
        let store = Self::default();
        store.0.is_quiet.store(true, Ordering::Relaxed);
        store
    }

    /// How often it was asked for a sign of life, and for anything else.
    pub(crate) fn asked(&self) -> (u64, u64) {
        let count = |it: &AtomicU64| it.load(Ordering::Relaxed);
        (count(&self.0.checks), count(&self.0.asked))
    }

    fn mode(&self, key: &Key) -> Mode {
        let mode = self.0.mode.lock().expect("no panic").unwrap_or(Mode::Works);
        if self.part(key) == 0 {
            mode
        } else {
            Mode::Works
        }
    }

    fn reply<T: Send + Unpin + 'static>(
        &self,
        key: &Key,
        call: impl FnOnce(&MemoryStore) -> Reply<T>,
    ) -> Reply<T> {
        let asked = self.0.asked.fetch_add(1, Ordering::Relaxed);
        let mode = self.mode(key);
        assert!(mode != Mode::Panics || asked >= 100, "as it was told to");
        let answer = match mode {
            Mode::Works | Mode::Hangs | Mode::Panics => Some(call(&self.0.store)),
            Mode::Refuses | Mode::IsReadOnly => None,
        };
        Reply::pending(async move {
            if mode == Mode::Hangs {
                sleep(TIMEOUT).await;
                return Err(StoreError::new("no answer").outcome_unknown());
            }
            sleep(LATENCY).await;
            match answer {
                Some(answer) => answer.await,
                None => Err(StoreError::new("refused")),
            }
        })
    }
}

impl Store for Switched {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.reply(reserve.key, |store| store.reserve(reserve))
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        self.reply(release.key, |store| store.release(release))
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.reply(reserve.key, |store| store.peek(reserve))
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        self.reply(key, |store| store.heed(key, policy, word))
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        self.0.store.listen(listener);
    }

    fn is_listening(&self) -> bool {
        if !self.0.is_quiet.load(Ordering::Relaxed) {
            return true;
        }
        // In a time that is paused, nothing else would ever end it.
        let seen_to = self.0.seen_to.fetch_add(1, Ordering::Relaxed);
        assert!(seen_to < OFTEN, "somebody looks without end");
        false
    }

    fn check(&self, key: &Key) -> Reply<()> {
        self.0.checks.fetch_add(1, Ordering::Relaxed);
        let mode = self.mode(key);
        Reply::pending(async move {
            match mode {
                Mode::Works | Mode::IsReadOnly | Mode::Panics => {
                    sleep(LATENCY).await;
                    Ok(())
                }
                Mode::Refuses => Err(StoreError::new("refused")),
                Mode::Hangs => {
                    sleep(TIMEOUT).await;
                    Err(StoreError::new("no answer"))
                }
            }
        })
    }

    fn part(&self, key: &Key) -> u64 {
        u64::from(key.as_str().starts_with("other"))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        self.reply(key, |store| store.reset(key, policy))
    }
}
