//! A key that is known to be over its limit is refused without a call to the store.

use std::time::Duration;

use support::spend::build;
use tokio::time::{Instant, advance, sleep};
use tower_throttle::key::Key;
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::FailingStore;
use tower_throttle::{Decision, Limiter, LimiterBuilder, Quota, Snapshot};

const SECOND: Duration = Duration::from_secs(1);
const GUARD: Duration = Duration::from_millis(10);
/// Shorter than an entry holds.
const WINDOW: Duration = Duration::from_millis(500);
/// The most by which two clocks drift apart in a second or two.
const DRIFT: Duration = Duration::from_micros(50);

fn remote() -> FailingStore {
    FailingStore::new(MemoryStore::new())
}

fn per_window(limit: u32, store: &FailingStore) -> LimiterBuilder {
    let quota = Quota::new(limit, WINDOW);
    Limiter::builder()
        .quota(quota)
        .guard(GUARD)
        .store(store.clone())
}

async fn granted(limiter: &Limiter, cost: u32) -> bool {
    let decision = limiter.try_acquire("a").cost(cost).await;
    decision.expect("a decision").is_granted()
}

async fn limited(limiter: &Limiter, cost: u32) -> Snapshot {
    match limiter.try_acquire("a").cost(cost).await {
        Ok(Decision::Limited(limited)) => limited,
        other => panic!("not limited: {other:?}"),
    }
}

#[tokio::test]
async fn a_flood_of_refused_requests_hardly_reaches_the_store() {
    let floods = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let store = remote();
    let limiter = build(
        Limiter::builder()
            .quota(Quota::per_hour(1))
            .store(store.clone()),
    );
    assert!(granted(&limiter, 1).await);
    for _ in 0..floods {
        assert!(!granted(&limiter, 1).await);
    }
    assert!(store.calls() < 100, "{} calls", store.calls());
}

#[tokio::test(start_paused = true)]
async fn the_store_is_called_again_from_the_time_that_it_named() {
    let store = remote();
    let limiter = build(per_window(1, &store));
    assert!(granted(&limiter, 1).await);
    let named = limited(&limiter, 1).await.delay();
    let calls = store.calls();
    let start = Instant::now();

    advance(named / 3).await;
    let later = limited(&limiter, 1).await;
    let left = named - start.elapsed();
    assert!((left..=left + DRIFT).contains(&later.delay()), "{later:?}");
    assert_eq!(later.reset(), later.delay());
    assert_eq!(later.remaining(), 0);

    advance(left - DRIFT).await;
    assert!(!limited(&limiter, 1).await.delay().is_zero());
    assert_eq!(store.calls(), calls);

    advance(DRIFT).await;
    assert!(granted(&limiter, 1).await);
    assert_eq!(store.calls(), calls + 1);
}

#[tokio::test(start_paused = true)]
async fn a_reset_and_a_raised_limit_count_at_once() {
    let store = remote();
    let limiter = build(per_window(1, &store));
    assert!(granted(&limiter, 1).await);
    limited(&limiter, 1).await;
    limiter.reset("a").await.expect("an answer");
    assert!(granted(&limiter, 1).await);
    limited(&limiter, 1).await;
    let raised = Quota::new(2, WINDOW);
    limiter.set_quota(raised).expect("a quota");
    assert!(granted(&limiter, 1).await);
    limited(&limiter, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_departure_that_another_process_returns_is_available_within_a_second() {
    let store = remote();
    let quota = Quota::per_hour(1);
    let [here, there] =
        [(); 2].map(|()| build(Limiter::builder().quota(quota).store(store.clone())));
    let permit = there.acquire("a").await.expect("a permit");
    limited(&here, 1).await;
    permit.forfeit();
    sleep(SECOND / 2).await;
    limited(&here, 1).await;
    sleep(SECOND / 2).await;
    assert!(granted(&here, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_cache_of_no_keys_remembers_nothing() {
    let store = remote();
    let limiter = build(per_window(1, &store).denial_cache(0));
    assert!(granted(&limiter, 1).await);
    for _ in 0..10 {
        limited(&limiter, 1).await;
    }
    assert_eq!(store.calls(), 11);
}

#[tokio::test(start_paused = true)]
async fn the_cache_holds_as_many_keys_as_it_may() {
    let store = remote();
    let limiter = build(per_window(1, &store).denial_cache(100));
    for key in 0..2_000 {
        let key = Key::from(format!("user:{key}"));
        for _ in 0..2 {
            let decision = limiter.try_acquire(&key).await;
            decision.expect("a decision");
        }
    }
    let calls = store.calls();
    let mut known = 0;
    for key in 0..2_000 {
        let before = store.calls();
        let decision = limiter.try_acquire(format!("user:{key}")).await;
        assert!(!decision.expect("a decision").is_granted());
        known += usize::from(store.calls() == before);
    }
    assert!(known <= 200, "{known} are known");
    assert!(store.calls() - calls >= 1_800);
}
