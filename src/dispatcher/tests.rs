//! Requests that wait, on the embedded store and on stores that fail.

use std::time::Duration;

use smallvec::smallvec;
use tokio::time::timeout;

use super::*;
use crate::Quota;
use crate::key::Key;
use crate::policy::PolicyParts;
use crate::queue::Refusal;

const SECOND: Duration = Duration::from_secs(1);

fn policy(quota: Quota) -> Arc<Policy> {
    let parts = PolicyParts {
        quotas: smallvec![quota],
        ..PolicyParts::default()
    };
    Arc::new(parts.build().expect("a policy"))
}

fn embedded(quota: Quota) -> Arc<Handle> {
    let store = MemoryStore::new();
    let dispatcher = Dispatcher::new(Arc::new(store.clone()), Some(store));
    Handle::new(&dispatcher, policy(quota), None, 0)
}

/// Waits for a turn.
async fn depart(handle: &Arc<Handle>, cost: u32) -> Result<Instant, Refusal> {
    let waiting = handle.join(&Key::new("key"), cost, Instant::now(), None)?;
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
        handle.dispatcher().schedule.lock().tasks.is_empty(),
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
        .join(&Key::new("key"), 1, now, Some(now + SECOND / 2))
        .unwrap();
    let refusal = waiting.await.expect_err("a bound");
    assert!(matches!(refusal, Refusal::Limited(_)), "{refusal:?}");
    assert_eq!(Instant::now(), now);
    let waiting = handle
        .join(&Key::new("key"), 1, now, Some(now + 2 * SECOND))
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
                .join(&key, 1, Instant::now(), None)
                .unwrap()
                .await
                .unwrap()
                .0,
        );
    }
    for delay in [100, 800] {
        let start = Instant::now();
        let waiter = handle.join(&key, 1, start, None).unwrap();
        let waiter = tokio::spawn(waiter);
        tokio::time::sleep(Duration::from_millis(delay)).await;
        handle.forfeit(&key, turns.remove(0));
        let (turn, _) = waiter.await.unwrap().unwrap();
        assert!(
            start.elapsed() <= Duration::from_millis(delay + 5),
            "{:?}",
            start.elapsed()
        );
        drop(turn);
    }
}
