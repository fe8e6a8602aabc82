//! By a clock that is set by hand, verdicts take no time, on whatever runtime.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tokio::time::Instant;
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::history::History;
use tower_throttle::test_util::{ManualClock, store_contract};
use tower_throttle::{Limiter, LimiterBuilder, Quota};

use super::{MS, SECOND, granted, limited, quota};

const HOUR: Duration = Duration::from_secs(3_600);
const TICK: Duration = Duration::from_micros(1);

fn by(clock: &ManualClock, quota: Quota) -> LimiterBuilder {
    let store = MemoryStore::with_clock(clock.clone());
    Limiter::builder().store(store).quota(quota)
}

fn build(builder: LimiterBuilder) -> Limiter {
    builder.build().expect("a valid policy")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_tick_before_the_promised_wait_it_is_refused_and_at_it_it_is_allowed() {
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
            let promised = limited(&limiter).await.delay();
            clock.advance(promised - TICK);
            assert_eq!(limited(&limiter).await.delay(), TICK, "{text}");
            clock.advance(TICK);
            assert!(granted(&limiter).await, "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_that_is_too_short_is_refused_without_waiting() {
    let clock = ManualClock::new();
    let limiter = build(by(&clock, Quota::per_hour(1)).max_wait(HOUR / 2));
    limiter.acquire("a").await.expect("the first");
    for minutes in [0, 10, 29] {
        let start = clock.now();
        clock.advance(minutes * Duration::from_secs(60));
        let error = limiter.acquire("a").await.expect_err("too long");
        let wait = error.limited().expect("it was limited").delay();
        assert!(wait > HOUR / 2, "{wait:?}");
        assert_eq!(limiter.peek("a").await.expect("a look").delay(), wait);
        clock.set(start);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_departs_until_a_clock_that_was_set_back_has_caught_up() {
    let clock = ManualClock::new();
    let limiter = build(by(&clock, Quota::per_second(1)));
    assert!(granted(&limiter).await);
    let promised = limited(&limiter).await.delay();
    clock.set_back(HOUR);
    assert_eq!(limited(&limiter).await.delay(), promised + HOUR);
    clock.advance(HOUR);
    assert_eq!(limited(&limiter).await.delay(), promised);
    // Forward, and what departed a moment ago seems to be long past.
    clock.advance(HOUR);
    assert!(granted(&limiter).await);
}

#[tokio::test]
async fn days_begin_where_the_clock_has_them() {
    let clock = ManualClock::new();
    let limiter = build(by(&clock, quota("1/d fixed-window")));
    clock.advance(22 * HOUR);
    assert!(granted(&limiter).await);
    assert_eq!(limited(&limiter).await.delay(), 2 * HOUR);
    clock.set(SystemTime::UNIX_EPOCH + 30_000 * 24 * HOUR - TICK);
    assert!(
        !granted(&limiter).await,
        "its guard would reach into the next day"
    );
    clock.advance(TICK);
    assert!(granted(&limiter).await);
    assert_eq!(limited(&limiter).await.delay(), 24 * HOUR);
}

/// However many ask at the same time, and while somebody else sets the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_that_ask_at_once_get_what_the_quota_holds() {
    const ROUNDS: u32 = 20;
    let clock = ManualClock::new();
    let limiter = build(by(&clock, Quota::per_hour(10)));
    let mut all = 0;
    for _ in 0..ROUNDS {
        let asking = (0..4).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut count = 0;
                for _ in 0..25 {
                    count += u32::from(granted(&limiter).await);
                }
                count
            })
        });
        let counts = join_all(asking.collect::<Vec<_>>()).await;
        let count: u32 = counts.into_iter().map(|it| it.expect("no panic")).sum();
        assert_eq!(count, 10);
        all += count;
        clock.advance(HOUR + SECOND);
    }
    assert_eq!(all, ROUNDS * 10);
}

#[tokio::test(start_paused = true)]
async fn who_waits_departs_by_a_clock_that_runs() {
    let clock = ManualClock::running();
    let limiter = build(by(&clock, Quota::per_second(5)));
    let departs = (0..20).map(|_| async {
        limiter.acquire("a").await.expect("a permit");
        Instant::now()
    });
    let history: History = join_all(departs).await.into_iter().collect();
    history.assert_at_most(5, SECOND);
    assert!(history.span() < Some(4 * SECOND), "{history:?}");
}

/// Who holds slots departs, and others beside them: so it is with any store, and what strict recovery is for.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_forward_lets_more_depart() {
    let clock = ManualClock::running();
    let limiter = build(by(&clock, Quota::per_second(5)));
    let departs = async |count: u32| {
        let departs = (0..count).map(|_| async {
            limiter.acquire("a").await.expect("a permit");
            Instant::now()
        });
        join_all(departs).await
    };
    let setting = async {
        tokio::time::sleep(100 * MS).await;
        clock.advance(HOUR);
        departs(10).await
    };
    let (before, after) = tokio::join!(departs(10), setting);
    let history: History = before.into_iter().chain(after).collect();
    let most = history.most_in_any(SECOND);
    assert!((6..=10).contains(&most), "{most}");
}

#[tokio::test(start_paused = true)]
async fn a_store_of_such_a_clock_keeps_the_contract() {
    store_contract(async || MemoryStore::with_clock(ManualClock::running())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_such_a_clock_keeps_the_contract_in_real_time() {
    store_contract(async || MemoryStore::with_clock(ManualClock::running())).await;
}
