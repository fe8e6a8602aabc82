//! A store loses its state, or its clock is set, as users would test it.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::history::History;
use tower_throttle::test_util::{FailingStore, ManualClock};
use tower_throttle::{Limiter, Quota, Recovery};

use super::{MS, SECOND};

const LIMIT: u32 = 5;

/// Lets 45 requests depart, and something happens to the store after half a second.
async fn departures(
    store: &FailingStore,
    recovery: Recovery,
    something: impl AsyncFnOnce(),
) -> History {
    let limiter = Limiter::builder()
        .store(store.clone())
        .quota(Quota::per_second(LIMIT))
        .recovery(recovery)
        .build()
        .expect("a valid policy");
    let departing = join_all((0..30).map(|_| async {
        limiter.acquire("a").await.expect("a permit");
        Instant::now()
    }));
    let meanwhile = async {
        sleep(SECOND / 2).await;
        something().await;
        let more = (0..15).map(|_| async {
            limiter.acquire("a").await.expect("a permit");
            Instant::now()
        });
        join_all(more).await
    };
    let (some, more) = tokio::join!(departing, meanwhile);
    some.into_iter().chain(more).collect()
}

fn store() -> (FailingStore, ManualClock) {
    let clock = ManualClock::running();
    let store = FailingStore::new(MemoryStore::with_clock(clock.clone()));
    (store.latency(2 * MS), clock)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_state_lets_up_to_twice_as_many_depart() {
    let (store, _) = store();
    let lose = async || store.lose_state();
    let history = departures(&store, Recovery::Immediate, lose).await;
    let most = history.most_in_any(SECOND);
    assert!((6..=2 * u64::from(LIMIT)).contains(&most), "{most}");
}

#[tokio::test(start_paused = true)]
async fn strict_recovery_never_lets_more_depart_than_the_quota_allows() {
    let (first, _) = store();
    let lose = async || first.lose_state();
    let history = departures(&first, Recovery::Strict, lose).await;
    assert_eq!(history.len(), 45);
    history.assert_at_most(LIMIT.into(), SECOND);

    for hours in [-3, 3] {
        let (store, clock) = store();
        let by = Duration::from_secs(3_600) * 3;
        let set = async || match hours {
            ..0 => clock.set_back(by),
            _ => clock.advance(by),
        };
        let history = departures(&store, Recovery::Strict, set).await;
        assert_eq!(history.len(), 45);
        history.assert_at_most(LIMIT.into(), SECOND);
        assert!(history.span() < Some(60 * SECOND), "{:?}", history.span());
    }
}
