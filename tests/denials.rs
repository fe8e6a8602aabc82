//! A key that is known to be over its limit is refused without a call to the store.

use crate::prelude::*;

/// Shorter than an entry holds.
const WINDOW: Duration = Duration::from_millis(500);
/// The most by which two clocks drift apart in a second or two.
const DRIFT: Duration = Duration::from_micros(50);

fn remote() -> FailingStore {
    FailingStore::new(MemoryStore::new())
}

fn one_per(window: Duration, store: &FailingStore) -> LimiterBuilder {
    let builder = Limiter::builder().quota(Quota::new(1, window));
    builder.guard(10 * MS).store(store.clone())
}

async fn is_granted(limiter: &Limiter) -> bool {
    attempt(limiter, "a", 1).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn the_store_is_called_again_from_the_time_that_it_named() {
    let store = remote();
    let limiter = build(one_per(WINDOW, &store));
    let limited = async || attempt(&limiter, "a", 1).await.expect_err("one departed");
    assert!(is_granted(&limiter).await);
    let (named, start) = (limited().await.delay(), Instant::now());
    let calls = store.calls();

    advance(named / 3).await;
    let later = limited().await;
    let left = named - start.elapsed();
    assert!((left..=left + DRIFT).contains(&later.delay()), "{later:?}");
    assert_eq!((later.reset(), later.remaining()), (later.delay(), 0));

    advance(left - DRIFT).await;
    assert!(!limited().await.delay().is_zero());
    assert_eq!(store.calls(), calls);

    advance(DRIFT).await;
    assert!(is_granted(&limiter).await);
    assert_eq!(store.calls(), calls + 1);
}

#[tokio::test(start_paused = true)]
async fn a_refund_a_reset_and_a_raised_limit_count_at_once() {
    let limiter = build(one_per(WINDOW, &remote()));
    let permit = attempt(&limiter, "a", 1).await.expect("a permit");
    assert!(!is_granted(&limiter).await);
    permit.into_charge().refund();
    assert!(is_granted(&limiter).await && !is_granted(&limiter).await);
    limiter.reset("a").await.expect("an answer");
    assert!(is_granted(&limiter).await && !is_granted(&limiter).await);
    let raised = Quota::new(2, WINDOW);
    limiter.set_quota(raised).expect("a quota");
    assert!(is_granted(&limiter).await && !is_granted(&limiter).await);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_that_is_cancelled_counts_at_once() {
    let limiter = build(one_per(WINDOW, &remote()));
    assert!(is_granted(&limiter).await);
    let second = async || limiter.acquire("a").max_wait(WINDOW * 3 / 2).await;
    let first = limiter.acquire("a").priority(Priority::High);
    let mut first = Box::pin(first.into_future());
    assert!(timeout(10 * MS, &mut first).await.is_err() && second().await.is_err());
    drop(first);
    assert!(second().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_another_process_releases_counts_at_once() {
    let store = remote();
    let [one, other] = [(); 2].map(|()| build(under(&["1 concurrent"]).store(store.clone())));
    let place = one.acquire("a").await.expect("a permit").hold();
    assert!(!is_granted(&other).await);
    drop(place);
    sleep(10 * MS).await;
    assert!(is_granted(&other).await);
}

#[tokio::test(start_paused = true)]
async fn the_cache_holds_as_many_keys_as_it_may() {
    for (keys, most) in [(0, 0), (100, 200)] {
        let store = remote();
        let limiter = build(one_per(WINDOW, &store).denial_cache(keys));
        let mut known = 0;
        for round in 0..3 {
            for key in 0..2_000 {
                let before = store.calls();
                let decision = attempt(&limiter, &format!("user:{key}"), 1).await;
                assert_eq!(decision.is_ok(), round == 0);
                known += usize::from(round == 2 && store.calls() == before);
            }
        }
        assert!(known <= most, "{known} are known of {keys}");
    }
}
