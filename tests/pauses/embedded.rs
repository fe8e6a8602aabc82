//! In one process, in paused time.

use support::spend::{attempt, build, under};
use tokio::time::{Instant, sleep};

use crate::pauses::{MS, SECOND, departures, history, line, per_second};

#[tokio::test(start_paused = true)]
async fn requests_wait_until_the_pause_is_over_and_keep_their_places() {
    let limiter = build(per_second(5));
    let start = Instant::now();
    let line = line(&limiter, 25).await;
    sleep(SECOND * 3 / 2).await;
    let until = Instant::now() + SECOND * 10;
    limiter.pause("a", until).await.expect("a pause");
    let departures = departures(line).await;
    assert!(departures.is_sorted());
    let before = departures.iter().filter(|&&at| at < until).count();
    assert_eq!(before, 10, "two windows departed before");
    assert!(departures[9] - start < SECOND * 3 / 2);
    history(&departures, start).assert_at_most(5, SECOND);
    // From then on, as fast as the quota allows.
    assert!(departures[10] < until + MS * 20, "{departures:?}");
    assert!(departures[24] < until + SECOND * 3, "{departures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_during_a_pause_waits_or_is_refused() {
    for text in [
        "2/s",
        "2/s sliding-buckets buckets=10",
        "2/s spacing",
        "2/s gcra burst=2",
        "2/s fixed-window",
    ] {
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

#[tokio::test(start_paused = true)]
async fn a_shorter_pause_does_not_shorten_a_longer_one_and_resuming_ends_it() {
    let limiter = build(per_second(5));
    let now = Instant::now();
    for until in [now + 60 * SECOND, now + SECOND, now] {
        limiter.pause("a", until).await.expect("a pause");
    }
    let line = line(&limiter, 12).await;
    sleep(SECOND * 30).await;
    assert!(line.iter().all(|waiter| !waiter.is_finished()));
    limiter.resume("a").await.expect("no pause");
    let departures = departures(line).await;
    assert!(departures.is_sorted());
    assert!(departures[0] - now < SECOND * 31, "{departures:?}");
    history(&departures, now).assert_at_most(5, SECOND);
}
