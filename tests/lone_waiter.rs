//! Who waits alone drives its line itself, and those with long to wait gather before they ask.

#[path = "support/pass_on.rs"]
mod pass_on;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use futures_util::{FutureExt as _, poll};
use pass_on::pass_on;
use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep, timeout};
use tower_throttle::store::{MemoryStore, Release, Reply, Reserve, Reserved, Store};
use tower_throttle::{Acquire, Limiter, Quota};

const SECOND: Duration = Duration::from_secs(1);
const GUARD: Duration = Duration::from_millis(10);
const MS: Duration = Duration::from_millis(1);

/// A store whose answers take a while.
#[derive(Debug, Clone, Default)]
struct Fake {
    store: MemoryStore,
    reserve_takes: Duration,
    release_takes: Duration,
    /// By how much a release sets the clock forward when it is polled again.
    release_jumps: Duration,
    reserves: Arc<AtomicUsize>,
    /// How many slots were given back, by releases that were answered.
    released: Arc<AtomicUsize>,
    /// How many calls to come panic, at once or with their answer.
    panics: Arc<AtomicUsize>,
    panics_late: bool,
}

impl Fake {
    fn new(reserve_takes: Duration) -> Self {
        Self {
            reserve_takes,
            release_takes: MS,
            ..Self::default()
        }
    }

    /// One per window.
    fn limiter(&self, window: Duration) -> Limiter {
        let quota = Quota::new(1, window);
        let builder = Limiter::builder().quota(quota).guard(GUARD);
        builder.store(self.clone()).build().expect("a valid policy")
    }

    fn reserves(&self) -> usize {
        self.reserves.load(Ordering::SeqCst)
    }

    fn released(&self) -> usize {
        self.released.load(Ordering::SeqCst)
    }

    fn panic_if_told(&self) {
        let one_less = |left: usize| left.checked_sub(1);
        let told = self
            .panics
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        assert!(told.is_err(), "as told");
    }
}

impl Store for Fake {
    pass_on!(store: peek, heed, reset, listen, is_listening);

    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.reserves.fetch_add(1, Ordering::SeqCst);
        if !self.panics_late {
            self.panic_if_told();
        }
        let (fake, answer) = (self.clone(), self.store.reserve(reserve));
        Reply::pending(async move {
            if !fake.reserve_takes.is_zero() {
                sleep(fake.reserve_takes).await;
            }
            fake.panic_if_told();
            answer.await
        })
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        let (fake, answer) = (self.clone(), self.store.release(release));
        let slots = release.slots.len();
        Reply::pending(async move {
            if fake.release_jumps.is_zero() {
                sleep(fake.release_takes).await;
            } else {
                yield_now().await;
                advance(fake.release_jumps).now_or_never();
                sleep(SECOND).await;
            }
            fake.released.fetch_add(slots, Ordering::SeqCst);
            answer.await
        })
    }
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let turns_out_so = async {
        while !is_so() {
            sleep(MS).await;
        }
    };
    timeout(SECOND * 20, turns_out_so).await.expect("in time");
}

/// Somebody in line, polled once.
async fn waiter(limiter: &Limiter) -> Pin<Box<Acquire>> {
    let mut waiter = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut waiter).is_pending());
    waiter
}

#[tokio::test(start_paused = true)]
async fn a_waiter_alone_that_does_not_look_does_not_keep_a_second_waiting() {
    let limiter = Fake::new(MS).limiter(SECOND);
    limiter.acquire("a").await.expect("a permit");
    for looks_again in [false, true] {
        let mut alone = waiter(&limiter).await;
        if looks_again {
            sleep(MS * 20).await;
            assert!(poll!(&mut alone).is_pending());
        }
        let second = timeout(SECOND * 5 / 2, limiter.acquire("a")).await;
        second.expect("in time").expect("a permit");
        let permit = timeout(SECOND * 5 / 2, alone).await;
        permit.expect("in time").expect("a permit");
        until(|| limiter.lines() == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lone_waiter_dropped_while_it_asks_gives_its_slot_back() {
    let fake = Fake::new(MS * 3);
    let limiter = fake.limiter(SECOND);
    let alone = waiter(&limiter).await;
    drop(alone);
    sleep(MS * 50).await;
    assert_eq!((fake.reserves(), fake.released()), (1, 1));
    assert_eq!(limiter.lines(), 0);
    let permit = limiter.acquire("a").await.expect("a permit");
    assert!(permit.waited() < MS * 50, "{permit:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_waiter_dropped_outside_of_its_runtime_gives_its_slot_back() {
    for (asked_ms, dropped_ms) in [(50, 0), (5, 50)] {
        let fake = Fake::new(MS * asked_ms);
        let limiter = fake.limiter(SECOND);
        let alone = waiter(&limiter).await;
        sleep(MS * dropped_ms).await;
        thread::spawn(move || drop(alone)).join().expect("no panic");
        until(|| (fake.released(), limiter.lines()) == (1, 0)).await;
        assert_eq!(fake.reserves(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_once_fails_a_lone_waiter_and_serves_the_next() {
    for panics_late in [false, true] {
        let mut fake = Fake::new(MS);
        fake.panics_late = panics_late;
        fake.panics.store(1, Ordering::SeqCst);
        let limiter = fake.limiter(SECOND);
        let answer = timeout(SECOND, limiter.acquire("a")).await;
        assert!(answer.expect("an answer").expect_err("no slot").is_store());
        assert_eq!(limiter.lines(), 0);
        let permit = timeout(SECOND * 2, limiter.acquire("a")).await;
        permit.expect("in time").expect("a permit");
        assert_eq!(limiter.lines(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_outlasts_the_lone_waiter_that_began_it() {
    let mut fake = Fake::new(MS);
    fake.release_takes = SECOND / 2;
    let limiter = fake.limiter(SECOND);
    limiter.acquire("a").await.expect("a permit");
    let mut alone = waiter(&limiter).await;
    sleep(MS * 20).await;
    assert!(poll!(&mut alone).is_pending());
    // Its slot comes and expires.
    sleep(SECOND * 2).await;
    let start = Instant::now();
    alone.await.expect("a permit");
    assert!(start.elapsed() < SECOND / 10, "{:?}", start.elapsed());
    assert_eq!(fake.released(), 0);
    sleep(SECOND).await;
    assert_eq!((fake.released(), limiter.lines()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lone_waiter_whose_slot_passed_unseen_gets_another() {
    let fake = Fake::new(MS);
    let limiter = fake.limiter(SECOND);
    limiter.acquire("a").await.expect("a permit");
    let mut alone = waiter(&limiter).await;
    for seconds in [3, 10, 30] {
        // Long past the slot, or past the one after, and the answer with it.
        sleep(SECOND * seconds).await;
        assert!(poll!(&mut alone).is_pending());
    }
    let permit = timeout(SECOND * 3, alone).await;
    permit.expect("in time").expect("a permit");
    until(|| limiter.lines() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_lone_waiter_whose_slot_passes_while_it_looks_gets_another() {
    let mut fake = Fake::new(Duration::ZERO);
    fake.release_jumps = SECOND * 3;
    let limiter = fake.limiter(SECOND);
    limiter.acquire("a").await.expect("a permit");
    let mut alone = waiter(&limiter).await;
    sleep(SECOND * 2).await;
    let before = fake.reserves();
    // Gives back what has passed; while that goes on, what it gets instead passes as well.
    let start = Instant::now();
    let permit = timeout(SECOND * 30, &mut alone).await;
    permit.expect("in time").expect("a permit");
    let jump = SECOND * 3..SECOND * 3 + MS * 500;
    assert!(jump.contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(fake.reserves() >= before + 2, "{fake:?}");
    until(|| limiter.lines() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_forfeited_goes_to_the_lone_waiter_or_back() {
    for (held_ms, longest_wait) in [(0, MS * 5), (4, MS * 9), (40, SECOND + GUARD * 3)] {
        let fake = Fake::new(MS);
        let limiter = fake.limiter(SECOND);
        let permit = limiter.acquire("a").await.expect("a permit");
        let mut alone = waiter(&limiter).await;
        sleep(MS * held_ms).await;
        if held_ms > 0 {
            assert!(poll!(&mut alone).is_pending());
        }
        permit.forfeit();
        let start = Instant::now();
        let permit = alone.await.expect("a permit");
        assert!(start.elapsed() <= longest_wait, "{:?}", start.elapsed());
        assert!(permit.is_valid());
        sleep(SECOND / 10).await;
        assert_eq!((fake.released(), limiter.lines()), (1, 0), "{held_ms}");
    }
}

#[test]
fn a_lone_waiter_and_a_second_of_another_runtime_are_both_served() {
    let limiter = Fake::new(MS).limiter(MS * 200);
    let runtime = || {
        Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
    };
    let (one, other) = (runtime().expect("a runtime"), runtime().expect("a runtime"));
    one.block_on(limiter.acquire("a")).expect("a permit");
    let in_time =
        |limiter: Limiter| async move { timeout(SECOND * 20, limiter.acquire("a")).await };
    let first = one.spawn(in_time(limiter.clone()));
    thread::sleep(MS * 50);
    let second = other.spawn(in_time(limiter.clone()));
    for (runtime, waiter) in [(&one, first), (&other, second)] {
        let permit = runtime.block_on(waiter).expect("no panic");
        permit.expect("in time").expect("a permit");
    }
    one.block_on(until(|| limiter.lines() == 0));
}

/// So many in line, that all have slots; the last is as many seconds away.
async fn line(limiter: &Limiter, waiters: usize) -> Vec<Pin<Box<Acquire>>> {
    limiter.acquire("a").await.expect("a permit");
    let mut line = Vec::new();
    for _ in 0..waiters {
        line.push(waiter(limiter).await);
    }
    sleep(SECOND / 5).await;
    line
}

#[tokio::test(start_paused = true)]
async fn newcomers_to_a_long_line_share_calls() {
    let fake = Fake::new(MS);
    let limiter = fake.limiter(SECOND);
    let mut line = line(&limiter, 10).await;
    let before = fake.reserves();
    for _ in 0..50 {
        line.push(waiter(&limiter).await);
        sleep(MS).await;
    }
    sleep(SECOND / 5).await;
    let calls = fake.reserves() - before;
    assert!((1..=3).contains(&calls), "{calls}");
    drop(line);
    sleep(SECOND / 5).await;
    assert_eq!((fake.released(), limiter.lines()), (60, 0));
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_refused_before_others_have_gathered() {
    let limiter = Fake::new(MS).limiter(SECOND);
    let mut line = line(&limiter, 10).await;
    for others_gather in [true, false] {
        if others_gather {
            line.push(waiter(&limiter).await);
            sleep(MS * 2).await;
        }
        let start = Instant::now();
        let bounded = limiter.acquire("a").max_wait(SECOND).await;
        assert!(bounded.expect_err("too long").is_limited());
        assert!(start.elapsed() <= MS * 5, "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_does_not_put_the_next_call_off() {
    let fake = Fake::new(MS);
    let limiter = fake.limiter(SECOND);
    let mut line = line(&limiter, 30).await;
    let before = fake.reserves();
    for _ in 0..40 {
        line.push(waiter(&limiter).await);
    }
    for left in 0..23 {
        // Now one that has a slot, now one that waits for it.
        drop(line.remove(if left % 2 == 0 { 0 } else { line.len() - 1 }));
        line.push(waiter(&limiter).await);
        // And one in a hurry, that leaves before anybody asks for it.
        let hurried = poll!(Box::pin(limiter.acquire("a").max_wait(SECOND * 60)));
        assert!(hurried.is_pending());
        sleep(MS * 5).await;
    }
    let calls = fake.reserves() - before;
    assert!((1..=2).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn as_many_as_a_call_takes_gather_no_further() {
    let fake = Fake::new(MS);
    let limiter = fake.limiter(SECOND);
    let mut line = line(&limiter, 10).await;
    let (before, start) = (fake.reserves(), Instant::now());
    // The first of them begins to gather.
    line.push(waiter(&limiter).await);
    sleep(MS * 2).await;
    assert_eq!(fake.reserves(), before);
    for _ in 0..6_000 {
        line.push(Box::pin(limiter.acquire("a")));
        assert!(poll!(line.last_mut().expect("the last")).is_pending());
    }
    until(|| fake.reserves() >= before + 3).await;
    assert!(start.elapsed() <= MS * 10, "{:?}", start.elapsed());
}
