//! Many requests that wait for one key.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::*;
use crate::dispatcher::Waiting;

const MANY: usize = 10_000;

/// The time on the processor that a test may take: much more than it needs, and much less than if each request had to
/// do with all others.
const MOST: Duration = Duration::from_secs(10);

/// The time that this thread has run on a processor; without `/proc`, the time that has passed.
fn processor_time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat");
    let nanos = stat
        .ok()
        .and_then(|stat| stat.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// Counts how often a request is polled.
struct Counted {
    waiting: Waiting,
    polls: Arc<AtomicU64>,
}

impl Future for Counted {
    type Output = Result<(), Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.waiting).poll(cx).map(|it| it.map(drop))
    }
}

/// So many requests wait; returns how often they were polled in all.
async fn wait_all(
    handle: &Arc<Handle>,
    bound: Option<Duration>,
) -> (Vec<Result<(), Refusal>>, u64) {
    let polls = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..MANY {
        let now = Instant::now();
        let waiting = handle.wait(&Key::new("key"), 1, now, bound.map(|it| now + it));
        let waiting = waiting.unwrap();
        let polls = polls.clone();
        tasks.push(tokio::spawn(Counted { waiting, polls }));
        tokio::task::yield_now().await;
    }
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap());
    }
    (results, polls.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_requests_wait_on_the_embedded_store() {
    let begun = processor_time();
    let handle = embedded(Quota::per_second(500));
    let (results, polls) = wait_all(&handle, None).await;
    assert!(results.iter().all(Result::is_ok));
    println!("{:?}, {polls} polls", processor_time() - begun);
    assert!(polls <= 4 * MANY as u64, "{polls} polls");
    assert!(
        processor_time() - begun < MOST,
        "{:?}",
        processor_time() - begun
    );
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_bounded_requests_wait_on_the_embedded_store() {
    let begun = processor_time();
    let handle = embedded(Quota::per_second(500));
    let (results, polls) = wait_all(&handle, Some(30 * SECOND)).await;
    assert!(results.iter().all(Result::is_ok));
    println!("{:?}, {polls} polls", processor_time() - begun);
    assert!(
        processor_time() - begun < MOST,
        "{:?}",
        processor_time() - begun
    );
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_requests_wait_on_a_slow_store() {
    for bound in [None, Some(30 * SECOND)] {
        let begun = processor_time();
        let store = Remote::new(Duration::from_millis(20));
        let handle = remote(&store, Quota::per_second(500), None);
        let (results, polls) = wait_all(&handle, bound).await;
        assert!(results.iter().all(Result::is_ok));
        let calls = store.calls.load(Ordering::Relaxed);
        println!(
            "{:?}, {polls} polls, {calls} calls",
            processor_time() - begun
        );
        assert!(calls <= 1_000, "{calls} calls");
        assert!(polls <= 6 * MANY as u64, "{polls} polls");
        assert!(
            processor_time() - begun < MOST,
            "{:?}",
            processor_time() - begun
        );
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_requests_wait_for_a_store_that_is_out() {
    let begun = processor_time();
    let store = Remote::new(Duration::from_millis(2));
    let handle = remote(&store, Quota::per_second(500), None);
    store.set(Fault::Out);
    let (results, polls) = wait_all(&handle, None).await;
    assert!(results.iter().all(Result::is_err));
    println!("{:?}, {polls} polls", processor_time() - begun);
    assert!(polls <= 6 * MANY as u64, "{polls} polls");
    assert!(
        processor_time() - begun < MOST,
        "{:?}",
        processor_time() - begun
    );
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_requests_try_at_once_and_are_cancelled_at_once() {
    let begun = processor_time();
    let store = Remote::new(Duration::from_millis(20));
    let handle = remote(&store, Quota::new(MANY as u32 / 2, 100 * SECOND), None);
    let now = Instant::now();
    let tries = (0..MANY).map(|_| {
        handle
            .join(Mode::Try, &Key::new("key"), 1, now.into(), None, None)
            .unwrap()
    });
    let tries: Vec<_> = tries.map(tokio::spawn).collect();
    let mut departed = 0;
    for attempt in tries {
        departed += usize::from(attempt.await.unwrap().is_ok());
    }
    assert_eq!(departed, MANY / 2);
    let waiting = (0..MANY).map(|_| handle.wait(&Key::new("key"), 1, now, None).unwrap());
    let waiting: Vec<_> = waiting.collect();
    tokio::time::sleep(SECOND).await;
    drop(waiting);
    println!("{:?}", processor_time() - begun);
    assert!(
        processor_time() - begun < MOST,
        "{:?}",
        processor_time() - begun
    );
}
