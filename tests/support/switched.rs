//! A store that can be switched off, wholly or in part: [`Switched`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::{
    Listen, MemoryStore, Notice, Release, Reply, Reserve, Reserved, Store, Word,
};
use tower_throttle::test_util::{FailingStore, Fault};

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

/// A [`FailingStore`] of which a part never fails: that of the keys that start with `other`.
#[derive(Debug, Clone)]
pub(crate) struct Switched(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: FailingStore,
    other: FailingStore,
    panics: AtomicBool,
    /// How many calls have.
    panicked: AtomicU64,
    is_quiet: AtomicBool,
    seen_to: AtomicU64,
}

impl Default for Switched {
    fn default() -> Self {
        let inside = MemoryStore::new();
        let part = || FailingStore::new(inside.clone()).latency(LATENCY);
        Self(Arc::new(Inner {
            store: part(),
            other: part(),
            panics: AtomicBool::new(false),
            panicked: AtomicU64::new(0),
            is_quiet: AtomicBool::new(false),
            seen_to: AtomicU64::new(0),
        }))
    }
}

impl Switched {
    pub(crate) fn switch(&self, mode: Mode) {
        let store = &self.0.store;
        self.0.panics.store(mode == Mode::Panics, Ordering::SeqCst);
        store.set_latency(match mode {
            Mode::Hangs => TIMEOUT,
            _ => LATENCY,
        });
        match mode {
            Mode::Works | Mode::Panics => store.recover(),
            Mode::Refuses => store.fail_with(Fault::Unreachable),
            Mode::Hangs => store.fail_with(Fault::LostReply),
            Mode::IsReadOnly => store.fail_with(Fault::ReadOnly),
        }
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
        let parts = [&self.0.store, &self.0.other];
        let sum = |count: fn(&FailingStore) -> u64| parts.into_iter().map(count).sum::<u64>();
        let panicked = self.0.panicked.load(Ordering::SeqCst);
        (
            sum(FailingStore::checks),
            sum(FailingStore::calls) + panicked,
        )
    }

    fn of(&self, key: &Key) -> &FailingStore {
        if self.part(key) > 0 {
            return &self.0.other;
        }
        if self.0.panics.load(Ordering::SeqCst) {
            let panicked = self.0.panicked.fetch_add(1, Ordering::SeqCst);
            assert!(panicked >= 100, "as it was told to");
        }
        &self.0.store
    }
}

impl Store for Switched {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.of(reserve.key).reserve(reserve)
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        self.of(release.key).release(release)
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.of(reserve.key).peek(reserve)
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        self.of(key).heed(key, policy, word)
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        self.0.store.listen(listener);
    }

    fn is_listening(&self) -> bool {
        if !self.0.is_quiet.load(Ordering::Relaxed) {
            return self.0.store.is_listening();
        }
        // In a time that is paused, nothing else would ever end it.
        let seen_to = self.0.seen_to.fetch_add(1, Ordering::Relaxed);
        assert!(seen_to < OFTEN, "somebody looks without end");
        false
    }

    fn check(&self, key: &Key) -> Reply<()> {
        if self.part(key) > 0 {
            return self.0.other.check(key);
        }
        self.0.store.check(key)
    }

    fn part(&self, key: &Key) -> u64 {
        u64::from(key.as_str().starts_with("other"))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        self.of(key).reset(key, policy)
    }
}
