//! With stores that are slow, forget a call, do not tell, or set their clock, in paused time.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::key::Key;
use tower_throttle::store::{
    Listen, MemoryStore, Notice, Release, Reply, Reserve, Reserved, Store, StoreError, Word,
};
use tower_throttle::{Limiter, Policy, Quota};

use crate::support::pass_on::pass_on;
use crate::support::slots::{answer_ahead, slot_ahead};
use crate::{MS, SECOND, build, departures, line, per_second};

/// Not in the process, as far as a limiter can tell.
#[derive(Debug, Clone, Default)]
struct Remote {
    store: MemoryStore,
    tells: bool,
    /// How much later words are answered than heeded.
    heeds_within: std::time::Duration,
    /// How many words are lost.
    loses: Arc<AtomicUsize>,
    /// By how many microseconds its clock was set back.
    back: Arc<AtomicI64>,
    reserved: Arc<AtomicUsize>,
}

impl Remote {
    fn back(&self) -> i64 {
        self.back.load(Ordering::SeqCst)
    }
}

impl Store for Remote {
    pass_on!(store: peek, reset);

    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.reserved.fetch_add(1, Ordering::SeqCst);
        let (reply, back) = (self.store.reserve(reserve), self.back());
        Reply::pending(async move {
            sleep(MS).await;
            Ok(answer_ahead(&reply.await?, -back))
        })
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        let back = self.back();
        let slots = release.slots.iter().map(|slot| slot_ahead(slot, back));
        let slots: Vec<_> = slots.collect();
        self.store
            .release(&Release::new(release.key, release.policy, &slots))
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        let lose = |left: usize| left.checked_sub(1);
        let lost = self
            .loses
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose);
        if word != Word::None && lost.is_ok() {
            return Reply::ready(Err(StoreError::new("the connection is lost")));
        }
        let (reply, within) = (self.store.heed(key, policy, word), self.heeds_within);
        Reply::pending(async move {
            sleep(within).await;
            reply.await
        })
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        if self.tells {
            self.store.listen(listener);
        }
    }

    fn is_listening(&self) -> bool {
        self.tells
    }
}

fn telling() -> Remote {
    Remote {
        tells: true,
        ..Remote::default()
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_by_former_quotas_stops_too() {
    let limiter = build(per_second(1).store(telling()));
    let start = Instant::now();
    let line = line(&limiter, 4).await;
    limiter.set_quota(Quota::per_second(2)).expect("a quota");
    sleep(SECOND / 2).await;
    limiter
        .pause("a", start + SECOND * 12)
        .await
        .expect("a pause");
    let departures = departures(line).await;
    assert!(departures[0] < start + SECOND);
    assert!(
        departures[1] >= start + SECOND * 12,
        "{:?}",
        departures[1] - start
    );
}

#[tokio::test(start_paused = true)]
async fn a_shorter_pause_by_other_quotas_leaves_the_longer_one() {
    let limiter = build(per_second(1).store(telling()));
    let start = Instant::now();
    limiter
        .pause("a", start + SECOND * 60)
        .await
        .expect("a pause");
    limiter.set_quota(Quota::per_second(2)).expect("a quota");
    limiter.pause("a", start + SECOND).await.expect("a pause");
    limiter.acquire("a").await.expect("a permit");
    assert!(start.elapsed() >= SECOND * 60, "{:?}", start.elapsed());
}

/// Its own word changes nothing then, and nobody tells it of the other's.
#[tokio::test(start_paused = true)]
async fn who_says_to_pause_stops_also_if_another_has_said_so_before() {
    let store = Remote::default();
    let quota = Quota::new(1, SECOND * 2 / 5);
    let [one, other] =
        [(); 2].map(|()| build(Limiter::builder().quota(quota).store(store.clone())));
    let start = Instant::now();
    let until = start + SECOND * 12;
    other.acquire("a").await.expect("a permit");
    // It knows nothing of the store's clock yet: its first slot is on the way.
    let line = line(&one, 1).await;
    other.pause("a", until).await.expect("a pause");
    one.pause("a", until).await.expect("a pause");
    let departures = departures(line).await;
    assert!(departures[0] >= until, "{:?}", departures[0] - start);
}

#[tokio::test(start_paused = true)]
async fn who_looks_by_other_quotas_keeps_to_the_pause() {
    let limiter = build(per_second(1).store(Remote::default()));
    let start = Instant::now();
    limiter
        .pause("a", start + SECOND * 12)
        .await
        .expect("a pause");
    limiter.set_quota(Quota::per_second(2)).expect("a quota");
    let departures = departures(line(&limiter, 6).await).await;
    assert!(
        departures[0] >= start + SECOND * 12,
        "{:?}",
        departures[0] - start
    );
}

#[tokio::test(start_paused = true)]
async fn who_looks_goes_on_when_a_pause_is_over_before_its_time() {
    let store = Remote::default();
    let [waiting, resuming] = [(); 2].map(|()| build(per_second(1).store(store.clone())));
    let start = Instant::now();
    resuming
        .pause("a", start + SECOND * 600)
        .await
        .expect("a pause");
    let line = line(&waiting, 2).await;
    sleep(SECOND * 2).await;
    resuming.resume("a").await.expect("no pause");
    let departures = departures(line).await;
    assert!(
        departures[1] < start + SECOND * 6,
        "{:?}",
        departures[1] - start
    );
}

#[tokio::test(start_paused = true)]
async fn a_word_that_is_lost_is_said_again() {
    let store = telling();
    let limiter = build(per_second(5).store(store.clone()));
    let start = Instant::now();
    store.loses.store(1, Ordering::SeqCst);
    limiter
        .pause("a", start + SECOND * 9)
        .await
        .expect("a pause");
    limiter.acquire("a").await.expect("a permit");
    assert!(start.elapsed() >= SECOND * 9);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_known_late_does_not_outlive_its_end() {
    let slow = Remote {
        heeds_within: MS * 100,
        ..telling()
    };
    let quick = Remote {
        store: slow.store.clone(),
        ..telling()
    };
    let [pausing, resuming] = [slow, quick].map(|store| build(per_second(1).store(store)));
    let start = Instant::now();
    let pause = tokio::spawn({
        let pausing = pausing.clone();
        async move { pausing.pause("a", start + SECOND * 600).await }
    });
    sleep(MS * 50).await;
    resuming.resume("a").await.expect("no pause");
    pause.await.expect("no panic").expect("a pause");
    for limiter in [pausing, resuming] {
        limiter.acquire("a").await.expect("a permit");
    }
    assert!(start.elapsed() < SECOND * 5, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_again_and_again_where_the_clock_was_set_back() {
    let store = telling();
    let limiter = build(per_second(1).store(store.clone()));
    let line = line(&limiter, 4).await;
    sleep(SECOND / 2).await;
    limiter
        .pause("a", Instant::now() + SECOND)
        .await
        .expect("a pause");
    sleep(MS * 100).await;
    let before = store.reserved.load(Ordering::SeqCst);
    store.back.store(10_000_000, Ordering::SeqCst);
    limiter.resume("a").await.expect("no pause");
    // How long they wait is another matter.
    let _ = timeout(SECOND * 60, join_all(line)).await;
    let calls = store.reserved.load(Ordering::SeqCst) - before;
    assert!(calls < 20, "{calls} calls for three requests");
}
