//! Stores that misbehave as told: [`Parted`], of several parts, and [`Shifted`], whose clock can be set.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::{
    MemoryStore, Notice, Release, Reply, Reserve, Reserved, Store, StoreError, Word,
};

use super::support::pass_on::pass_on;
use super::support::slots::answer_ahead;

/// How long each answer takes.
const LATENCY: Duration = Duration::from_millis(1);

/// A store that is asked as if it were far away. The first letter of a key is its part.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parted {
    store: MemoryStore,
    out: Arc<Mutex<HashSet<u64>>>,
    /// Of those that are out, which give signs of life.
    alive: Arc<Mutex<HashSet<u64>>>,
}

impl Parted {
    /// The parts of these keys are out, and no others.
    pub(crate) fn out(&self, keys: &[&str]) {
        let parts = keys.iter().map(|key| part(key));
        *self.out.lock().expect("no panic") = parts.collect();
    }

    /// The parts of these keys give signs of life, even if they are out.
    pub(crate) fn alive(&self, keys: &[&str]) {
        let parts = keys.iter().map(|key| part(key));
        *self.alive.lock().expect("no panic") = parts.collect();
    }

    fn reply<T: Send + Unpin + 'static>(
        &self,
        key: &Key,
        call: impl FnOnce(&MemoryStore) -> Reply<T>,
    ) -> Reply<T> {
        let is_out = self.out.lock().expect("no panic").contains(&self.part(key));
        let answer = (!is_out).then(|| call(&self.store));
        Reply::pending(async move {
            sleep(LATENCY).await;
            match answer {
                Some(answer) => answer.await,
                None => Err(StoreError::new("it is out").caused_by("a test")),
            }
        })
    }
}

fn part(key: &str) -> u64 {
    key.bytes().next().unwrap_or_default().into()
}

impl Store for Parted {
    pass_on!(store: listen);

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

    fn is_listening(&self) -> bool {
        true
    }

    fn check(&self, key: &Key) -> Reply<()> {
        let is_alive = self
            .alive
            .lock()
            .expect("no panic")
            .contains(&self.part(key));
        match is_alive {
            true => Reply::ready(Ok(())),
            false => self.reply(key, |_| Reply::ready(Ok(()))),
        }
    }

    fn part(&self, key: &Key) -> u64 {
        part(key.as_str())
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        self.reply(key, |store| store.reset(key, policy))
    }
}

/// A store whose clock is so many microseconds ahead of the true time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shifted {
    store: MemoryStore,
    ahead: Arc<AtomicI64>,
}

impl Shifted {
    pub(crate) fn set(&self, seconds: i64) {
        self.ahead.store(seconds * 1_000_000, Ordering::Relaxed);
    }

    fn answer(&self, answer: Reply<Reserved>) -> Reply<Reserved> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        Reply::pending(async move {
            sleep(LATENCY).await;
            Ok(answer_ahead(&answer.await?, ahead))
        })
    }
}

impl Store for Shifted {
    pass_on!(store: heed, reset);

    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.answer(self.store.reserve(reserve))
    }

    /// They stay reserved.
    fn release(&self, _: &Release<'_>) -> Reply<()> {
        Reply::ready(Ok(()))
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.answer(self.store.peek(reserve))
    }
}
