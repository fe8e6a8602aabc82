//! Corners of the line: bounds, costs, runtimes and stores that are slow or terse.

#[path = "support/pass_on.rs"]
mod pass_on;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures_util::poll;
use pass_on::pass_on;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::store::{MemoryStore, Release, Reply, Reserve, Reserved, Store};
use tower_throttle::{Limiter, LimiterBuilder, Quota};

const SECOND: Duration = Duration::from_secs(1);
const GUARD: Duration = Duration::from_millis(10);
const MS: Duration = Duration::from_millis(1);

fn per_second(limit: u32) -> LimiterBuilder {
    let quota = Quota::per_second(limit);
    Limiter::builder().quota(quota).guard(GUARD)
}

fn build(builder: LimiterBuilder) -> Limiter {
    builder.build().expect("a valid policy")
}

/// A store whose answers take a while, and whose calls start when they are first polled.
#[derive(Debug, Clone)]
struct Slow {
    store: MemoryStore,
    delay: Duration,
    calls: Arc<AtomicUsize>,
}

impl Slow {
    fn new(delay: Duration) -> Self {
        Self {
            store: MemoryStore::new(),
            delay,
            calls: Arc::default(),
        }
    }
}

impl Store for Slow {
    pass_on!(store: peek, heed, reset, listen, is_listening);

    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let (slow, key) = (self.clone(), reserve.key.clone());
        let (policy, asks) = (reserve.policy.clone(), reserve.asks.to_vec());
        let (guard, least_guard, not_before) =
            (reserve.guard, reserve.least_guard, reserve.not_before);
        Reply::pending(async move {
            let mut reserve = Reserve::new(&key, &policy);
            reserve.guard = guard;
            reserve.least_guard = least_guard;
            reserve.not_before = not_before;
            reserve.asks = &asks;
            let answer = slow.store.reserve(&reserve).await;
            sleep(slow.delay).await;
            answer
        })
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        let (slow, key) = (self.clone(), release.key.clone());
        let (policy, slots) = (release.policy.clone(), release.slots.to_vec());
        Reply::pending(async move {
            let release = Release::new(&key, &policy, &slots);
            let answer = slow.store.release(&release).await;
            sleep(slow.delay).await;
            answer
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_never_waits_for_a_slot_that_another_leaves() {
    let limiter = build(per_second(1));
    limiter.acquire("a").await.expect("a permit");
    let mut waiter = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut waiter).is_pending());
    sleep(MS * 20).await;
    let start = Instant::now();
    let mut decision = Box::pin(limiter.try_acquire("a"));
    assert!(poll!(&mut decision).is_pending());
    drop(waiter);
    assert!(!decision.await.expect("a decision").is_granted());
    assert!(start.elapsed() < MS * 100, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_bounded_wait_is_refused_at_once_though_somebody_ahead_leaves() {
    let limiter = build(per_second(1).store(Slow::new(MS * 3)));
    limiter.acquire("a").await.expect("a permit");
    let mut line: Vec<_> = (0..5).map(|_| Box::pin(limiter.acquire("a"))).collect();
    for waiter in &mut line {
        assert!(poll!(waiter).is_pending());
    }
    sleep(MS * 20).await;
    let start = Instant::now();
    let mut bounded = Box::pin(limiter.acquire("a").max_wait(SECOND));
    assert!(poll!(&mut bounded).is_pending());
    sleep(MS).await;
    line.pop();
    assert!(bounded.await.expect_err("too long").is_limited());
    assert!(start.elapsed() < MS * 100, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slot_never_goes_to_a_request_of_another_cost() {
    let limiter = build(per_second(2).store(Slow::new(MS * 5)));
    limiter.acquire("a").cost(2).await.expect("a permit");
    // Its slot comes and expires, and nobody looks.
    let mut late = Box::pin(limiter.acquire("a").cost(2));
    assert!(poll!(&mut late).is_pending());
    sleep(SECOND + GUARD * 4).await;
    // While another asks for a slot, that one leaves and the late one is back.
    let mut leaves = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut leaves).is_pending());
    tokio::task::yield_now().await;
    sleep(MS).await;
    drop(leaves);
    assert!(poll!(&mut late).is_pending());
    let permit = late.await.expect("a permit");
    assert_eq!(permit.cost(), 2);
    let start = Instant::now();
    limiter.acquire("a").await.expect("a permit");
    assert!(start.elapsed() >= SECOND, "three in a second");
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_is_had_again_by_who_comes_next() {
    let limiter = build(per_second(1).store(Slow::new(MS)));
    limiter.acquire("a").await.expect("a permit");
    let mut leaves = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut leaves).is_pending());
    sleep(MS * 20).await;
    drop(leaves);
    let waited = limiter.acquire("a").await.expect("a permit").waited();
    assert!(waited < SECOND + GUARD * 2, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_late_wake_up_does_not_stall_those_of_another_cost() {
    let limiter = build(per_second(2));
    let start = Instant::now();
    limiter.acquire("a").cost(2).await.expect("a permit");
    let mut head = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut head).is_pending());
    let mut line = Vec::new();
    for _ in 0..20 {
        let mut waiter = Box::pin(limiter.acquire("a").cost(2));
        assert!(poll!(&mut waiter).is_pending());
        line.push(tokio::spawn(waiter));
    }
    sleep(SECOND + GUARD * 5).await;
    head.await.expect("another slot");
    for waiter in line {
        waiter.await.expect("no panic").expect("a permit");
    }
    assert!(start.elapsed() < SECOND * 26, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_with_long_round_trips_still_lets_requests_go() {
    let store = Slow::new(SECOND * 5 / 2);
    let calls = store.calls.clone();
    let limiter = build(per_second(10).store(store));
    let permit = timeout(SECOND * 60, limiter.acquire("a")).await;
    permit.expect("within a minute").expect("a permit");
    assert!(calls.load(Ordering::SeqCst) <= 5);
}

#[derive(Debug, Default)]
struct Terse(MemoryStore);

impl Store for Terse {
    pass_on!(0: release, peek, heed, reset);

    fn reserve(&self, _: &Reserve<'_>) -> Reply<Reserved> {
        Reply::ready(Ok(Reserved::new(1 << 50, [], 0, SECOND)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_too_little_is_an_error() {
    let limiter = build(per_second(10).store(Arc::new(Terse::default())));
    let error = limiter.acquire("a").await.expect_err("no answer");
    assert!(error.is_store());
}

#[derive(Debug, Default)]
struct Broken(MemoryStore);

impl Store for Broken {
    pass_on!(0: release, peek, heed, reset);

    fn reserve(&self, _: &Reserve<'_>) -> Reply<Reserved> {
        panic!("as stores of one's own may, while they are written")
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_is_an_error_and_no_hang() {
    let limiter = build(per_second(10).store(Broken::default()));
    let error = timeout(SECOND, limiter.acquire("a")).await;
    assert!(error.expect("an answer").expect_err("no permit").is_store());
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

#[test]
fn a_runtime_that_is_not_running_keeps_nobody() {
    let limiter = build(Limiter::builder().quota(Quota::new(1, MS * 100)));
    let (idle, running) = (runtime(), runtime());
    idle.block_on(async {
        limiter.acquire("a").await.expect("a permit");
        limiter.acquire("a").await.expect("a permit");
    });
    let permit = running.block_on(async { timeout(SECOND * 20, limiter.acquire("a")).await });
    permit.expect("in time").expect("a permit");
}

#[test]
fn a_runtime_that_shuts_down_leaves_no_lines_behind() {
    let runtime = runtime();
    let limiter = build(per_second(1));
    runtime.block_on(async {
        for number in 0..10 {
            let key = format!("key {number}");
            limiter.acquire(&key).await.expect("a permit");
            for _ in 0..3 {
                tokio::spawn(limiter.acquire(&key));
            }
        }
        sleep(MS * 50).await;
    });
    assert_eq!(limiter.lines(), 10);
    drop(runtime);
    assert_eq!(limiter.lines(), 0);
}

#[test]
fn a_runtime_that_shuts_down_gives_back_however_many_slots() {
    let runtime = runtime();
    let limiter = build(per_second(1));
    runtime.block_on(async {
        limiter.acquire("a").await.expect("a permit");
        let mut waiters: Vec<_> = (0..5_000).map(|_| Box::pin(limiter.acquire("a"))).collect();
        for waiter in &mut waiters {
            assert!(poll!(waiter).is_pending());
        }
        sleep(MS * 100).await;
    });
    drop(runtime);
    assert_eq!(limiter.lines(), 0);
    let decision = self::runtime().block_on(async { limiter.try_acquire("a").await });
    let tower_throttle::Decision::Limited(limited) = decision.expect("a decision") else {
        panic!("granted");
    };
    assert!(limited.delay() <= SECOND + GUARD, "{limited:?}");
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits without any runtime.
fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

#[test]
fn waiting_outside_of_a_runtime_or_without_a_timer_panics_and_does_not_hang() {
    let wait_twice = |limiter: Limiter| async move {
        limiter.acquire("a").await.expect("a permit");
        limiter.acquire("a").await.expect("a permit");
    };
    let (done, ended) = mpsc::channel();
    for has_runtime in [false, true] {
        let done = done.clone();
        let waits = wait_twice(build(per_second(1)));
        thread::spawn(move || {
            let joined = thread::spawn(move || {
                if has_runtime {
                    let runtime = Builder::new_current_thread().build();
                    runtime.expect("a runtime").block_on(waits);
                } else {
                    wait(waits);
                }
            });
            done.send(joined.join().is_err()).expect("a listener");
        });
    }
    for _ in 0..2 {
        let panicked = ended.recv_timeout(SECOND * 20).expect("an end");
        assert!(panicked);
    }
}

#[tokio::test(start_paused = true)]
async fn showing_a_permit_does_not_show_everyone_who_waits() {
    let limiter = build(per_second(1));
    let mut waiters = Vec::new();
    for number in 0..50 {
        let key = format!("key {number}");
        limiter.acquire(&key).await.expect("a permit");
        let mut waiter = Box::pin(limiter.acquire(&key));
        assert!(poll!(&mut waiter).is_pending());
        waiters.push(waiter);
    }
    let permit = limiter.acquire("a").await.expect("a permit");
    let shown = format!("{permit:?} {limiter:?}");
    assert!(shown.len() < 500, "{shown}");
}
