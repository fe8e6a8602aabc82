//! A limiter on a failing store does what its outage policy says, as users would test it.

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::history::History;
use tower_throttle::test_util::{FailingStore, Fault};
use tower_throttle::{Limiter, Outage, Quota};

use super::{MS, SECOND};

const LIMIT: u32 = 10;

const OUTAGES: [Fault; 4] = [
    Fault::Unreachable,
    Fault::ReadOnly,
    Fault::LostRequest,
    Fault::LostReply,
];

fn limiter(store: &FailingStore, outage: Outage) -> Limiter {
    let builder = Limiter::builder().quota(Quota::per_second(LIMIT));
    let limiter = builder.store(store.clone()).outage(outage).build();
    limiter.expect("a valid policy")
}

fn store() -> FailingStore {
    FailingStore::new(MemoryStore::new()).latency(2 * MS)
}

/// Lets so many requests depart while something else happens.
async fn departures(limiter: &Limiter, count: u32, meanwhile: impl Future<Output = ()>) -> History {
    let departing = join_all((0..count).map(|_| async {
        let permit = limiter.acquire("a").await.expect("a permit");
        assert!(permit.is_valid());
        Instant::now()
    }));
    let (departed, ()) = tokio::join!(departing, meanwhile);
    departed.into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn by_deny_nothing_departs_until_it_is_back() {
    for fault in OUTAGES {
        let store = store();
        let limiter = limiter(&store, Outage::Deny);
        store.fail_with(fault);
        let start = Instant::now();
        let recovery = async {
            sleep(3 * SECOND).await;
            assert!(limiter.health().is_out());
            store.recover();
        };
        let history = departures(&limiter, 25, recovery).await;
        history.assert_at_most(LIMIT.into(), SECOND);
        let taken = start.elapsed();
        assert!(
            taken >= 5 * SECOND && taken < 9 * SECOND,
            "{fault:?}: {taken:?}"
        );
        assert!(!limiter.health().is_out());
    }
}

#[tokio::test(start_paused = true)]
async fn by_allow_everything_departs_uncounted() {
    for fault in OUTAGES {
        let store = store();
        let limiter = limiter(&store, Outage::Allow);
        store.fail_with(fault);
        let start = Instant::now();
        for _ in 0..10 * LIMIT {
            let permit = limiter.acquire("a").await.expect("a permit");
            assert!(!permit.is_counted());
        }
        assert!(start.elapsed() < SECOND, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn by_local_a_share_of_the_quota_departs() {
    for fault in OUTAGES {
        let store = store();
        let limiter = limiter(&store, Outage::Local { share: 0.3 });
        store.fail_with(fault);
        let history = departures(&limiter, 20, async {}).await;
        history.assert_at_most(3, SECOND);
        assert!(history.span() < Some(8 * SECOND), "{:?}", history.span());
    }
}

/// Waiting would not help, so it is no outage.
#[tokio::test(start_paused = true)]
async fn a_refusal_fails_at_once_whatever_the_policy_is() {
    for outage in [Outage::Deny, Outage::Allow, Outage::Local { share: 0.5 }] {
        let store = store();
        let limiter = limiter(&store, outage);
        store.fail_with(Fault::Refusal);
        let start = Instant::now();
        let error = limiter.acquire("a").await.expect_err("it is refused");
        assert!(error.is_store() && start.elapsed() < SECOND);
        assert!(!limiter.health().is_out());
        assert_eq!(store.pings(), 1, "before the first call");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_costs_no_departure() {
    let store = store();
    let limiter = limiter(&store, Outage::Deny);
    limiter.acquire("a").await.expect("a permit");
    store.fail_next(1, Fault::LostReply);
    let history = departures(&limiter, 20, async {}).await;
    history.assert_at_most(LIMIT.into(), SECOND);
    let early = history.times().filter(|&at| at < SECOND / 2).count();
    assert_eq!(early, LIMIT as usize - 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_made_again_after_a_successful_ping() {
    let store = store();
    let limiter = limiter(&store, Outage::Deny);
    limiter.acquire("a").await.expect("a permit");
    let (calls, pings) = (store.calls(), store.pings());
    store.fail_next(3, Fault::Unreachable);
    let start = Instant::now();
    limiter.acquire("a").await.expect("a permit");
    // The call and two pings fail.
    assert_eq!((store.failures(), store.pings() - pings), (3, 3));
    assert_eq!(store.calls() - calls, 2);
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_lets_no_request_depart_too_often() {
    for latency in [20, 200, 1_500] {
        let store = store();
        store.set_latency(latency * MS);
        let limiter = limiter(&store, Outage::Deny);
        let history = departures(&limiter, 25, async {}).await;
        assert_eq!(history.len(), 25);
        history.assert_at_most(LIMIT.into(), SECOND);
    }
}
