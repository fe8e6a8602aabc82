//! A store of many parts, each of which may be out, and whose keys move from one to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_throttle::key::Key;
use tower_throttle::store::{Reply, Reserve, Reserved, Store};
use tower_throttle::{Limiter, Outage, Quota};

use super::assert_out;
use super::support::pass_on::pass_on;
use super::support::switched::{Mode, Switched};

/// The servers of the store, between which its keys are divided by a number that each has for a name; the first
/// of them can be switched off.
#[derive(Debug, Clone)]
struct Parted {
    store: Switched,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    parts: AtomicU64,
    /// By how many servers all keys have moved.
    moved: AtomicU64,
    asked_for_part: AtomicU64,
}

impl Parted {
    fn new(parts: u64) -> Self {
        let inner = Inner {
            parts: parts.into(),
            moved: AtomicU64::new(0),
            asked_for_part: AtomicU64::new(0),
        };
        Self {
            store: Switched::default(),
            inner: Arc::new(inner),
        }
    }

    fn limiter(&self, outage: Outage) -> Limiter {
        let limiter = Limiter::builder().quota(Quota::per_second(1));
        let limiter = limiter.store(self.clone()).outage(outage).build();
        limiter.expect("a valid policy")
    }
}

impl Store for Parted {
    pass_on!(store: release, peek, heed, reset, listen, check);

    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let (part, reply) = (self.part(reserve.key), self.store.reserve(reserve));
        Reply::pending(async move { reply.await.map_err(|error| error.of_part(part)) })
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn part(&self, key: &Key) -> u64 {
        self.inner.asked_for_part.fetch_add(1, Ordering::Relaxed);
        let number: u64 = key.as_str().parse().unwrap_or(0);
        let moved = self.inner.moved.load(Ordering::Relaxed);
        1 + (number + moved) % self.inner.parts.load(Ordering::Relaxed)
    }
}

async fn all_depart(mut waiting: JoinSet<bool>) {
    while let Some(departs) = waiting.join_next().await {
        assert!(departs.expect("no panic"));
    }
}

fn wait(limiter: &Limiter, keys: u64) -> JoinSet<bool> {
    let mut waiting = JoinSet::new();
    for key in 0..keys {
        let acquire = limiter.acquire(key.to_string());
        waiting.spawn(async move { acquire.await.is_ok() });
    }
    waiting
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_costs_work_by_its_keys_whatever_the_number_of_parts() {
    for outage in [Outage::Deny, Outage::Local { share: 0.01 }] {
        for parts in [3, 1_000] {
            const KEYS: u64 = 1_000;
            let store = Parted::new(parts);
            let limiter = store.limiter(outage);
            store.store.switch(Mode::Refuses);
            // One of each departs by its share, if it may.
            let first = wait(&limiter, KEYS);
            let waiting = wait(&limiter, KEYS);
            sleep(Duration::from_secs(2)).await;
            let (checks, _) = store.store.asked();
            assert!(checks <= 8 * parts, "{checks} signs of life");
            store.inner.asked_for_part.store(0, Ordering::Relaxed);
            store.store.switch(Mode::Works);
            all_depart(first).await;
            all_depart(waiting).await;
            let asked = store.inner.asked_for_part.load(Ordering::Relaxed);
            assert!(asked <= 100 * KEYS, "{outage:?}, {parts}: {asked}");
        }
    }
}

/// The server that held them is out for good.
#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_key_that_moves_goes_on_where_it_is() {
    let store = Parted::new(2);
    let limiter = store.limiter(Outage::Deny);
    store.store.switch(Mode::Refuses);
    let waiting = wait(&limiter, 10);
    sleep(Duration::from_secs(2)).await;
    // Both are out, and all keys are at others from now on.
    store.inner.moved.store(2, Ordering::Relaxed);
    store.inner.parts.store(100, Ordering::Relaxed);
    store.store.switch(Mode::Works);
    let start = Instant::now();
    all_depart(waiting).await;
    assert!(start.elapsed() <= Duration::from_secs(3));
    // Nobody asks after those that are gone.
    let (checks, _) = store.store.asked();
    for _ in 0..3 {
        let _ = limiter.health();
        sleep(Duration::from_secs(1)).await;
    }
    assert!(!limiter.health().is_out());
    assert!(store.store.asked().0 <= checks + 2);
}

#[tokio::test(start_paused = true)]
async fn a_late_failure_is_none_of_the_part_that_holds_the_key_by_then() {
    let store = Parted::new(1);
    let limiter = store.limiter(Outage::Deny);
    store.store.switch(Mode::Hangs);
    let late = limiter.acquire("0").max_wait(Duration::ZERO);
    let late = tokio::spawn(late);
    sleep(Duration::from_millis(500)).await;
    store.inner.parts.store(100, Ordering::Relaxed);
    store.inner.moved.store(50, Ordering::Relaxed);
    store.store.switch(Mode::Works);
    assert_out(late.await.expect("no panic"));
    assert!(!limiter.health().is_out());
}
