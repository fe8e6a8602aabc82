//! Decisions by a manual clock take no time, on any runtime.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tokio::time::Instant;
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::ManualClock;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, LimiterBuilder, Quota};

use super::{SECOND, delay, granted, quota};
use support::spend::build;

const HOUR: Duration = Duration::from_secs(3_600);
const TICK: Duration = Duration::from_micros(1);

fn by(clock: &ManualClock, quota: Quota) -> LimiterBuilder {
    let store = MemoryStore::with_clock(clock.clone());
    Limiter::builder().store(store).quota(quota)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_refused_until_the_tick_at_which_its_delay_ends() {
    for text in [
        "3/h",
        "3/h sliding-buckets buckets=6",
        "3/h spacing",
        "3/h gcra burst=2",
        "3/h leaky-bucket capacity=5",
        "3/d fixed-window",
        "3/d fixed-window start=first-request",
    ] {
        let clock = ManualClock::new();
        let limiter = build(by(&clock, quota(text)));
        for _ in 0..3 {
            while granted(&limiter).await {}
            let promised = delay(&limiter).await;
            clock.advance(promised - TICK);
            assert!(!granted(&limiter).await, "{text}");
            assert_eq!(delay(&limiter).await, TICK, "{text}");
            clock.advance(TICK);
            assert!(granted(&limiter).await, "{text}");
        }
    }
}

#[tokio::test]
async fn days_begin_at_midnight_of_the_clock() {
    let clock = ManualClock::new();
    let limiter = build(by(&clock, quota("1/d fixed-window")));
    clock.advance(22 * HOUR);
    assert!(granted(&limiter).await);
    assert_eq!(delay(&limiter).await, 2 * HOUR);
    clock.set(SystemTime::UNIX_EPOCH + 30_000 * 24 * HOUR - TICK);
    assert!(
        !granted(&limiter).await,
        "its guard would reach into the next day"
    );
    clock.advance(TICK);
    assert!(granted(&limiter).await);
    assert_eq!(delay(&limiter).await, 24 * HOUR);
}

/// Lets so many requests depart at once.
async fn depart(limiter: &Limiter, count: u32) -> Vec<Instant> {
    let departs = (0..count).map(|_| async {
        limiter.acquire("a").await.expect("a permit");
        Instant::now()
    });
    join_all(departs).await
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_depart_by_a_clock_that_runs() {
    let clock = ManualClock::running();
    let limiter = build(by(&clock, Quota::per_second(5)));
    let history: History = depart(&limiter, 20).await.into_iter().collect();
    history.assert_at_most(5, SECOND);
    assert!(history.span() < Some(4 * SECOND), "{history:?}");
}
