//! A pause holds in all processes, and ends in all. `redis_deployments` has pauses on real servers.

use crate::limiter::{departures, queue};
use crate::prelude::*;

#[tokio::test(start_paused = true)]
async fn a_request_during_a_pause_waits_or_is_refused() {
    for text in ["2/s", "2/s spacing", "2/s fixed-window start=first-request"] {
        let limiter = build(under(&[text]));
        let until = Instant::now() + SECOND * 5;
        limiter.pause("a", until).await.expect("a pause");
        attempt(&limiter, "a", 1).await.expect_err("it is paused");
        let snapshot = limiter.peek("a").await.expect("an answer");
        assert_eq!((snapshot.remaining(), snapshot.delay()), (0, SECOND * 5));
        let bounded = limiter.acquire("a").max_wait(SECOND * 4).await;
        let error = bounded.expect_err("too long");
        assert_eq!(error.wait(), Some(SECOND * 5), "{text}");
        limiter.acquire("a").await.expect("a permit");
        assert!(Instant::now() >= until, "{text}");
        attempt(&limiter, "b", 1).await.expect("it is not paused");
    }
}

/// A grant lies at most so far ahead.
const HORIZON: Duration = Duration::from_millis(100);
const ROUND_TRIP: Duration = Duration::from_millis(4);
const GUARD: Duration = Duration::from_millis(12);

fn two(quota: Quota) -> [Limiter; 2] {
    let store = FailingStore::new(MemoryStore::new()).latency(ROUND_TRIP);
    [(); 2].map(|()| {
        let builder = Limiter::builder().quota(quota).guard(GUARD);
        build(builder.store(store.clone()))
    })
}

/// Whenever the pause begins, and whatever calls are under way. After it, they depart as fast as the quota allows.
#[tokio::test(start_paused = true)]
async fn a_process_stops_at_once_others_within_the_horizon_and_requests_keep_their_places() {
    for millis in (0..3_000).step_by(41) {
        let [one, other] = two(Quota::per_second(20));
        let queue = queue(&one, 100).await;
        sleep(millis * MS).await;
        let until = Instant::now() + 10 * SECOND;
        let (pausing, stopped) = match millis % 2 == 0 {
            true => (&one, Instant::now()),
            false => (&other, Instant::now() + HORIZON + GUARD + 2 * ROUND_TRIP),
        };
        pausing.pause("a", until).await.expect("a pause");
        let departures = departures(queue).await;
        let late = departures.iter().filter(|&&at| at > stopped && at < until);
        assert_eq!(late.count(), 0, "after {millis} ms");
        assert!(departures.is_sorted());
        let history: History = departures.iter().copied().collect();
        history.assert_at_most(20, SECOND);
        let next = departures.iter().find(|&&at| at >= until);
        let next = *next.expect("some wait");
        assert!(next < until + MS * 20, "after {millis} ms");
        assert!(departures[99] < until + SECOND * 6, "after {millis} ms");
    }
}

/// Also by a process that has paused the key itself.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_is_noticed_within_a_third_of_the_expected_wait() {
    let cases = [(600, 1, 200), (20, 2, 6), (20, 18, 1), (3, 1, 1)];
    for ((pause, waited, longest), by_itself) in
        cases.into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let [waiting, resuming] = two(Quota::per_second(1));
        let until = Instant::now() + pause * SECOND;
        let pausing = if by_itself { &waiting } else { &resuming };
        pausing.pause("a", until).await.expect("a pause");
        let queue = queue(&waiting, 2).await;
        sleep(waited * SECOND).await;
        let resumed = Instant::now();
        resuming.resume("a").await.expect("no pause");
        let noticed = departures(queue).await[0] - resumed;
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
