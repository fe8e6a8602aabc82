//! Decisions by a manual clock take no time, on any runtime.

use std::time::{Duration, SystemTime};

use tower_throttle::Limiter;
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::ManualClock;

use support::spend::under;

const HOUR: Duration = Duration::from_secs(3_600);
const TICK: Duration = Duration::from_micros(1);

fn by(clock: &ManualClock, quota: &str) -> Limiter {
    let store = MemoryStore::with_clock(clock.clone());
    let limiter = under(&[quota]).store(store).build();
    limiter.expect("a valid policy")
}

async fn granted(limiter: &Limiter) -> bool {
    let decision = limiter.try_acquire("a").await;
    decision.expect("a decision").is_granted()
}

async fn delay(limiter: &Limiter) -> Duration {
    limiter.peek("a").await.expect("an answer").delay()
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
        let limiter = by(&clock, text);
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
    let limiter = by(&clock, "1/d fixed-window");
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
