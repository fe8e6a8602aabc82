//! In one process, in paused time.

use tokio::time::{Instant, sleep};
use tower_throttle::store::MemoryStore;
use tower_throttle::{Algorithm, Limiter, Quota, WindowStart};

use crate::pauses::{MS, SECOND, build, departures, history, line, per_second};

async fn is_granted(limiter: &Limiter, key: &str) -> bool {
    let decision = limiter.try_acquire(key).await;
    decision.expect("an answer").is_granted()
}

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
    assert!(
        departures[10] < until + MS * 20,
        "{:?}",
        departures[10] - until
    );
    assert!(
        departures[24] < until + SECOND * 3,
        "{:?}",
        departures[24] - until
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_during_a_pause_waits_or_is_refused() {
    for algorithm in [
        Algorithm::SlidingLog,
        Algorithm::SlidingBuckets { buckets: 10 },
        Algorithm::Spacing,
        Algorithm::Gcra { burst: 2 },
        Algorithm::FixedWindow {
            start: WindowStart::Clock,
        },
    ] {
        let quota = Quota::per_second(2).algorithm(algorithm);
        let limiter = build(Limiter::builder().quota(quota));
        let until = Instant::now() + SECOND * 5;
        limiter.pause("a", until).await.expect("a pause");
        let limited = limiter.try_acquire("a").await.expect("an answer");
        assert!(limited.permit().is_none(), "{algorithm:?}");
        let snapshot = limiter.peek("a").await.expect("an answer");
        assert_eq!((snapshot.remaining(), snapshot.delay()), (0, SECOND * 5));
        let error = limiter
            .acquire("a")
            .max_wait(SECOND * 4)
            .await
            .expect_err("too long");
        assert_eq!(error.wait(), Some(SECOND * 5), "{algorithm:?}");
        limiter.acquire("a").await.expect("a permit");
        assert!(Instant::now() >= until, "{algorithm:?}");
        assert!(is_granted(&limiter, "b").await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shorter_pause_does_not_shorten_a_longer_one_and_resuming_ends_it() {
    let limiter = build(per_second(5));
    let now = Instant::now();
    limiter
        .pause("a", now + SECOND * 60)
        .await
        .expect("a pause");
    limiter.pause("a", now + SECOND).await.expect("a pause");
    limiter.pause("a", now).await.expect("none");
    let line = line(&limiter, 12).await;
    sleep(SECOND * 30).await;
    assert!(line.iter().all(|waiter| !waiter.is_finished()));
    limiter.resume("a").await.expect("no pause");
    let departures = departures(line).await;
    assert!(departures.is_sorted());
    assert!(
        departures[0] - now < SECOND * 31,
        "{:?}",
        departures[0] - now
    );
    history(&departures, now).assert_at_most(5, SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_has_paused_a_key_departs_after_the_resume_of_another() {
    let store = MemoryStore::new();
    let [pausing, resuming] = [(); 2].map(|()| build(per_second(10).store(store.clone())));
    pausing.acquire("a").await.expect("a permit");
    pausing
        .pause("a", Instant::now() + 60 * SECOND)
        .await
        .expect("it is paused");
    let waiting = line(&pausing, 3).await;
    sleep(300 * MS).await;
    pausing
        .pause("a", Instant::now() + 60 * SECOND)
        .await
        .expect("it is paused");
    sleep(300 * MS).await;
    resuming.resume("a").await.expect("it is resumed");
    let resumed = Instant::now();
    for at in departures(waiting).await {
        // The larger of a second and a quarter of the expected wait.
        assert!(at < resumed + 16 * SECOND, "{:?}", at - resumed);
    }
}
