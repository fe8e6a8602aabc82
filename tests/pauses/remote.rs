//! On a remote store without nudges, in paused time.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::{FailingStore, Fault};
use tower_throttle::{Limiter, Quota};

use crate::pauses::{MS, SECOND, build, departures, line, per_second};

/// A grant lies at most so far ahead.
const HORIZON: Duration = Duration::from_millis(100);
const ROUND_TRIP: Duration = Duration::from_millis(4);
const GUARD: Duration = Duration::from_millis(12);

/// Limiters on one store.
fn two(quota: Quota) -> [Limiter; 2] {
    let store = FailingStore::new(MemoryStore::new()).latency(ROUND_TRIP);
    [(); 2].map(|()| {
        let builder = Limiter::builder().quota(quota).guard(GUARD);
        build(builder.store(store.clone()))
    })
}

/// Whenever the pause begins, and whatever calls are under way.
#[tokio::test(start_paused = true)]
async fn another_process_stops_within_the_horizon() {
    for millis in (0..3_000).step_by(41) {
        let [one, other] = two(Quota::per_second(20));
        let line = line(&one, 70).await;
        sleep(millis * MS).await;
        let until = Instant::now() + 10 * SECOND;
        other.pause("a", until).await.expect("a pause");
        let stopped = Instant::now() + HORIZON + GUARD + ROUND_TRIP;
        let departures = departures(line).await;
        let late = departures.iter().filter(|&&at| at > stopped && at < until);
        assert_eq!(late.count(), 0, "after {millis} ms");
    }
}

/// Also by a process that has paused the key itself.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_is_noticed_within_a_quarter_of_the_expected_wait() {
    let cases = [(600, 1, 150), (20, 1, 5), (20, 17, 1), (3, 1, 1)];
    for ((pause, waited, longest), by_itself) in
        cases.into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let [waiting, resuming] = two(Quota::per_second(1));
        let until = Instant::now() + pause * SECOND;
        let pausing = if by_itself { &waiting } else { &resuming };
        pausing.pause("a", until).await.expect("a pause");
        let line = line(&waiting, 2).await;
        sleep(waited * SECOND).await;
        let resumed = Instant::now();
        resuming.resume("a").await.expect("no pause");
        let noticed = departures(line).await[0] - resumed;
        let longest = longest * SECOND + ROUND_TRIP + GUARD;
        assert!(noticed <= longest, "{pause} s: {noticed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_whose_answer_is_lost_is_sent_again() {
    let store = FailingStore::new(MemoryStore::new()).latency(ROUND_TRIP);
    let [one, other] = [(); 2].map(|()| build(per_second(5).store(store.clone())));
    let until = Instant::now() + 9 * SECOND;
    store.fail_next(1, Fault::LostRequest);
    one.pause("a", until).await.expect("a pause");
    other.acquire("a").await.expect("a permit");
    assert!(Instant::now() >= until);
}
