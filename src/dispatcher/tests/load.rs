//! Many requests that wait for one key.

use std::future::poll_fn;
use std::pin::Pin;

use super::*;

const MANY: usize = 10_000;

/// The time on the processor that a test may take: much more than it needs, and much less than if each request had to
/// do with all others.
const MOST: Duration = Duration::from_secs(10);

/// The time that this thread has run on a processor; without `/proc`, the time that has passed.
fn processor_time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat");
    let stat = stat.ok();
    let nanos = stat.and_then(|stat| stat.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

#[track_caller]
fn check(begun: Duration, polls: &AtomicU64) {
    let time = processor_time() - begun;
    let polls = polls.load(Ordering::Relaxed);
    let is_cheap = time < MOST && polls <= 6 * MANY as u64;
    assert!(is_cheap, "{time:?}, {polls} polls");
}

async fn wait_all(handle: &Arc<Handle>, bound: Option<Duration>) -> usize {
    let (begun, polls) = (processor_time(), Arc::<AtomicU64>::default());
    let mut tasks = Vec::new();
    for _ in 0..MANY {
        let now = Instant::now();
        let waiting = handle.wait(1, bound.map(|it| now + it));
        let (mut waiting, polls) = (waiting.unwrap(), polls.clone());
        tasks.push(tokio::spawn(poll_fn(move |cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut waiting).poll(cx)
        })));
        tokio::task::yield_now().await;
    }
    let mut departed = 0;
    for task in tasks {
        departed += usize::from(task.await.unwrap().is_ok());
    }
    check(begun, &polls);
    departed
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_requests_wait_at_little_cost() {
    for bound in [None, Some(30 * SECOND)] {
        assert_eq!(wait_all(&embedded("500/s"), bound).await, MANY);
        let store = Remote::new(Duration::from_millis(20));
        let remote = process(&store, policy("500/s"));
        assert_eq!(wait_all(&remote, bound).await, MANY);
        assert!(store.calls() <= 1_000, "{} calls", store.calls());
    }
    let store = Remote::new(Duration::from_millis(2));
    store.set(Fault::Out);
    assert_eq!(wait_all(&process(&store, policy("500/s")), None).await, 0);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_requests_try_at_once_and_are_cancelled_at_once() {
    let begun = processor_time();
    let store = Remote::new(Duration::from_millis(20));
    let handle = process(&store, policy("5_000/100s"));
    let attempt = |_| handle.ask(Mode::Try, 1, None).unwrap();
    let tries: Vec<_> = (0..MANY).map(attempt).map(tokio::spawn).collect();
    let mut departed = 0;
    for attempt in tries {
        departed += usize::from(attempt.await.unwrap().is_ok());
    }
    assert_eq!(departed, MANY / 2);
    let waiting = (0..MANY).map(|_| handle.wait(1, None).unwrap());
    let waiting: Vec<_> = waiting.collect();
    pass(1_000).await;
    drop(waiting);
    check(begun, &AtomicU64::default());
}

/// `join_all` polls requests that were not woken.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_polled_first_overtakes_only_its_neighbours() {
    let handle = process(&Remote::new(Duration::from_millis(2)), policy("20/s"));
    let wait = |_| Box::pin(handle.wait(1, None).unwrap());
    let mut waiting: Vec<_> = (0..20).map(wait).collect();
    pass(5).await;
    for (nth, it) in waiting.iter_mut().enumerate().rev() {
        let departs = futures_util::poll!(it).is_ready();
        assert_eq!(departs, nth < NEIGHBOURS, "{nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_move_up_if_one_before_them_is_cancelled() {
    let store = Remote::new(Duration::from_millis(2));
    let handle = process(&store, policy("100/s spacing"));
    let wait = |_| {
        let handle = handle.clone();
        tokio::spawn(async move { depart(&handle, 1).await.unwrap() })
    };
    let mut waiting: Vec<_> = (0..20).map(wait).collect();
    pass(25).await;
    waiting.remove(4).abort();
    let departures = futures_util::future::join_all(waiting).await;
    let departures: Vec<_> = departures.into_iter().map(Result::unwrap).collect();
    assert!(departures.is_sorted(), "{departures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_limiter_on_the_embedded_store_overtakes_no_other() {
    let memory = Arc::new(MemoryStore::new());
    let [one, other] = [(); 2].map(|()| process(&memory, policy("1/s")));
    depart(&one, 1).await.unwrap();
    let first = spawn(&one, 1);
    pass(930).await;
    let second = spawn(&other, 1);
    first.await.unwrap().unwrap();
    assert!(!second.is_finished());
}
