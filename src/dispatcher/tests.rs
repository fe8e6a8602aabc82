//! Requests that wait, on the embedded store and on stores that fail.

use std::time::Duration;

use smallvec::smallvec;
use tokio::time::timeout;

use super::*;
use crate::Quota;
use crate::key::Key;
use crate::policy::Recovery;
use crate::policy::{Plan, PolicyParts};
use crate::queue::Refusal;
use crate::telemetry::Settings;

mod failures;
mod load;
mod runtimes;

const SECOND: Duration = Duration::from_secs(1);

fn plan(quota: Quota, fallback: Option<Quota>) -> Plan {
    let parts = |quota| PolicyParts {
        quotas: smallvec![quota],
        ..PolicyParts::default()
    };
    let fallback = fallback.map(|quota| Arc::new(parts(quota).build().expect("a policy")));
    Plan {
        fallback,
        ..parts(quota).plan().expect("a policy")
    }
}

fn embedded(quota: Quota) -> Arc<Handle> {
    let store = MemoryStore::new();
    let dispatcher = Dispatcher::new(Arc::new(store.clone()), Some(store), "".into());
    Handle::new(&dispatcher, plan(quota, None), Settings::default(), 0)
}

impl Handle {
    fn wait(
        self: &Arc<Self>,
        key: &Key,
        cost: u32,
        arrival: Instant,
        bound: Option<Instant>,
    ) -> Result<Waiting, Refusal> {
        self.join(Mode::Wait, key, cost, arrival.into(), bound, None)
    }
}

/// Waits for a turn.
async fn depart(handle: &Arc<Handle>, cost: u32) -> Result<Instant, Refusal> {
    let waiting = handle.wait(&Key::new("key"), cost, Instant::now(), None)?;
    waiting.await.map(|_| Instant::now())
}

#[tokio::test(start_paused = true)]
async fn requests_depart_in_order_and_within_the_quota() {
    let handle = embedded(Quota::per_second(5));
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let handle = handle.clone();
        tasks.push(tokio::spawn(
            async move { depart(&handle, 1).await.unwrap() },
        ));
        tokio::task::yield_now().await;
    }
    let mut times = Vec::new();
    for task in tasks {
        times.push(task.await.unwrap() - start);
    }
    assert!(times.is_sorted(), "{times:?}");
    for window in times.windows(6) {
        assert!(window[5] - window[0] >= SECOND, "{times:?}");
    }
    assert!(times[19] <= Duration::from_millis(3_100), "{times:?}");
    tokio::time::sleep(2 * SECOND).await;
    assert!(
        handle.dispatcher.schedule.lock().tasks.is_empty(),
        "the task has ended"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_leaves_its_turn_to_the_next() {
    let handle = embedded(Quota::per_second(1));
    depart(&handle, 1).await.unwrap();
    let start = Instant::now();
    let first = timeout(SECOND / 2, depart(&handle, 1));
    let second = depart(&handle, 1);
    let (first, second) = tokio::join!(first, second);
    first.expect_err("cancelled");
    let waited = second.unwrap() - start;
    assert!(waited < Duration::from_millis(1_100), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bounded_request_fails_at_once_if_it_would_wait_longer() {
    let handle = embedded(Quota::per_second(1));
    depart(&handle, 1).await.unwrap();
    let now = Instant::now();
    let waiting = handle
        .wait(&Key::new("key"), 1, now, Some(now + SECOND / 2))
        .unwrap();
    let refusal = waiting.await.expect_err("a bound");
    assert!(matches!(refusal, Refusal::Limited(_)), "{refusal:?}");
    assert_eq!(Instant::now(), now);
    let waiting = handle
        .wait(&Key::new("key"), 1, now, Some(now + 2 * SECOND))
        .unwrap();
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_forfeited_permit_wakes_the_queue() {
    let handle = embedded(Quota::new(3, 5 * SECOND));
    let key = Key::new("key");
    let mut turns = Vec::new();
    for _ in 0..3 {
        turns.push(
            handle
                .wait(&key, 1, Instant::now(), None)
                .unwrap()
                .await
                .unwrap()
                .turn,
        );
    }
    for delay in [100, 800] {
        let start = Instant::now();
        let waiter = handle.wait(&key, 1, start, None).unwrap();
        let waiter = tokio::spawn(waiter);
        tokio::time::sleep(Duration::from_millis(delay)).await;
        handle.forfeit(&key, turns.remove(0));
        let Granted { turn, .. } = waiter.await.unwrap().unwrap();
        assert!(
            start.elapsed() <= Duration::from_millis(delay + 5),
            "{:?}",
            start.elapsed()
        );
        assert_eq!(turn.units, 1);
    }
}

/// A store behind a network: each call takes a round trip, and some fail.
#[derive(Debug)]
struct Remote {
    memory: MemoryStore,
    round_trip: Duration,
    fault: Mutex<Fault>,
    calls: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The calls are executed, and their answers are lost.
    Reply,
    /// Nothing reaches the store.
    Out,
    /// The store answers, but not for this key.
    Refuses,
    /// The answers are lost, as the process sees at once.
    Fails,
    /// No reply comes.
    Silent,
    /// One call blocks its thread for a while.
    Blocks,
    /// The store panics.
    Panics,
    /// The store leaves out the answers.
    Short,
}

/// So many calls in one test are a loop: the store works from then on, so that the test ends.
const LOOP: u64 = 2_000;

impl Remote {
    fn new(round_trip: Duration) -> Arc<Self> {
        let fault = Mutex::new(Fault::None);
        Arc::new(Self {
            memory: MemoryStore::new(),
            round_trip,
            fault,
            calls: AtomicU64::new(0),
        })
    }

    fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    fn reply(&self, answered: impl FnOnce() -> Answered) -> Reply<Answered> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        let (sent, half) = (Instant::now(), self.round_trip / 2);
        let fault = if calls < LOOP {
            *self.fault.lock()
        } else {
            Fault::None
        };
        match fault {
            Fault::Panics => panic!("the store panics, as this test expects"),
            Fault::Blocks => {
                self.set(Fault::None);
                std::thread::sleep(SECOND / 5);
            }
            Fault::Silent => return Reply::pending(std::future::pending()),
            Fault::Refuses => {
                let error = StoreError::new("the value is unrecognized").no_outage();
                return Reply::ready(Err(error));
            }
            Fault::Fails => {
                let error = StoreError::new("the answer was lost").no_outage();
                return Reply::ready(Err(error.outcome_unknown()));
            }
            _ => {}
        }
        if fault == Fault::Out {
            let error = StoreError::new("the store is out");
            return Reply::pending(async move {
                tokio::time::sleep(2 * half).await;
                Err(error)
            });
        }
        // As if the calls arrived at once, and the answers took the whole round trip.
        let mut answered = answered();
        if fault == Fault::Short {
            answered.answers.clear();
        }
        Reply::pending(async move {
            tokio::time::sleep(2 * half).await;
            if fault == Fault::Reply {
                return Err(StoreError::new("the answer was lost")
                    .no_outage()
                    .outcome_unknown());
            }
            let received = Instant::now();
            Ok(Answered {
                sent,
                received,
                ..answered
            })
        })
    }
}

impl Store for Remote {
    fn call(&self, calls: Vec<Call>) -> Reply<Answered> {
        self.reply(|| {
            self.memory
                .call(calls.clone())
                .take_ready()
                .unwrap()
                .unwrap()
        })
    }

    fn ping(&self, key: &Key) -> Reply<Answered> {
        self.reply(|| self.memory.ping(key).take_ready().unwrap().unwrap())
    }
}

fn remote(store: &Arc<Remote>, quota: Quota, fallback: Option<Quota>) -> Arc<Handle> {
    let dispatcher = Dispatcher::new(store.clone(), None, "".into());
    Handle::new(&dispatcher, plan(quota, fallback), Settings::default(), 100)
}

/// Two processes share a quota; returns when each of so many requests of each departed, in order.
async fn two_processes(store: &Arc<Remote>, quota: Quota, requests: usize) -> Vec<Duration> {
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let handle = remote(store, quota, None);
        for _ in 0..requests {
            let handle = handle.clone();
            tasks.push(tokio::spawn(
                async move { depart(&handle, 1).await.unwrap() },
            ));
        }
    }
    let mut times = Vec::new();
    for task in tasks {
        times.push(task.await.unwrap() - start);
    }
    times.sort_unstable();
    times
}

fn most_in(times: &[Duration], window: Duration) -> usize {
    let count = |first: &Duration| {
        times
            .iter()
            .filter(|&it| it >= first && *it < *first + window)
            .count()
    };
    times.iter().map(count).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn processes_share_a_quota_at_any_round_trip() {
    for millis in [1, 5, 50, 150] {
        let store = Remote::new(Duration::from_millis(millis));
        let times = two_processes(&store, Quota::per_second(10), 40).await;
        assert_eq!(most_in(&times, SECOND), 10, "{times:?}");
        let last = times[79].as_secs_f64();
        let round_trip = millis as f64 / 1_000.0;
        let guard = 0.012_f64.max(round_trip + 0.003);
        let ideal = 7.0 * (1.0 + guard) + 2.0 * round_trip;
        assert!(last <= 1.03 * ideal, "{last} s with {millis} ms");
        let calls = store.calls.load(Ordering::Relaxed);
        assert!(calls <= 80, "{calls} calls");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_costs_nothing_once_the_process_calls_again() {
    let store = Remote::new(Duration::from_millis(2));
    let handle = remote(&store, Quota::new(2, 100 * SECOND), None);
    depart(&handle, 1).await.unwrap();
    store.set(Fault::Reply);
    let start = Instant::now();
    let waiting = tokio::spawn(handle.wait(&Key::new("key"), 1, start, None).unwrap());
    tokio::time::sleep(Duration::from_millis(20)).await;
    store.set(Fault::None);
    waiting.await.unwrap().unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(200),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_store_that_is_out_for_five_seconds() {
    let store = Remote::new(Duration::from_millis(2));
    store.set(Fault::Out);
    let handle = remote(&store, Quota::per_second(10), None);
    let start = Instant::now();
    let refusal = depart(&handle, 1).await.expect_err("out");
    assert!(matches!(refusal, Refusal::Store(_)), "{refusal:?}");
    let waited = start.elapsed();
    assert!(waited >= 5 * SECOND && waited < 6 * SECOND, "{waited:?}");

    let waiting = tokio::spawn(
        handle
            .wait(&Key::new("key"), 1, Instant::now(), None)
            .unwrap(),
    );
    tokio::time::sleep(2 * SECOND).await;
    store.set(Fault::None);
    let start = Instant::now();
    waiting.await.unwrap().unwrap();
    assert!(
        start.elapsed() <= Duration::from_millis(1_100),
        "{:?}",
        start.elapsed()
    );
    assert!(store.calls.load(Ordering::Relaxed) < 40);
}

#[tokio::test(start_paused = true)]
async fn a_fallback_serves_the_queue_while_the_store_is_out() {
    let store = Remote::new(Duration::from_millis(2));
    let handle = remote(&store, Quota::per_second(10), Some(Quota::per_second(5)));
    depart(&handle, 1).await.unwrap();
    store.set(Fault::Out);
    let start = Instant::now();
    let waiting = (0..20).map(|_| handle.wait(&Key::new("key"), 1, start, None).unwrap());
    let waiting: Vec<_> = waiting.map(tokio::spawn).collect();
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    let elapsed = start.elapsed();
    assert!(elapsed >= 3 * SECOND && elapsed < 4 * SECOND, "{elapsed:?}");
    store.set(Fault::None);
    tokio::time::sleep(2 * SECOND).await;
    assert!(handle.dispatcher.outages.error(0).is_none());
    depart(&handle, 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_cancelled_leaves_nothing_behind() {
    let store = Remote::new(Duration::from_millis(2));
    let (one, other) = (
        remote(&store, Quota::per_second(2), None),
        remote(&store, Quota::per_second(2), None),
    );
    depart(&one, 2).await.unwrap();
    let start = Instant::now();
    let many: Vec<_> = (0..100)
        .map(|_| one.wait(&Key::new("key"), 1, start, None).unwrap())
        .collect();
    tokio::time::sleep(SECOND / 10).await;
    let waiting = tokio::spawn(
        other
            .wait(&Key::new("key"), 1, Instant::now(), None)
            .unwrap(),
    );
    tokio::time::sleep(SECOND / 10).await;
    drop(many);
    waiting.await.unwrap().unwrap();
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_millis(1_300), "{elapsed:?}");
}

#[test]
fn a_request_goes_on_after_its_runtime_has_shut_down() {
    let store = Remote::new(Duration::from_millis(2));
    let handle = remote(&store, Quota::per_second(1), None);
    let new_runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (first, second) = (new_runtime(), new_runtime());
    let mut waiting = Box::pin(async move {
        depart(&handle, 1).await.unwrap();
        depart(&handle, 1).await
    });
    let polled = first.block_on(async { timeout(SECOND / 2, &mut waiting).await.is_err() });
    assert!(polled, "it waits");
    drop(first);
    let departed = second.block_on(async { timeout(5 * SECOND, waiting).await });
    departed.expect("in time").unwrap();
}

#[test]
fn a_runtime_that_is_not_polled_holds_up_no_other() {
    let store = Remote::new(Duration::from_millis(2));
    let handle = remote(&store, Quota::new(1, SECOND / 2), None);
    let new_runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (idle, busy) = (new_runtime(), new_runtime());
    // Its task leads, and then it is not polled any more.
    idle.block_on(depart(&handle, 1)).unwrap();
    let entered = idle.enter();
    let joined = handle.wait(&Key::new("key"), 1, Instant::now(), None);
    drop(entered);
    let mut waits = Box::pin(joined.unwrap());
    idle.block_on(async { timeout(SECOND / 20, &mut waits).await.unwrap_err() });
    let start = Instant::now();
    busy.block_on(async { timeout(10 * SECOND, depart(&handle, 1)).await })
        .unwrap()
        .unwrap();
    // The first request of the other runtime loses its turn, for one window.
    assert!(
        start.elapsed() < Duration::from_millis(1_700),
        "{:?}",
        start.elapsed()
    );
}
