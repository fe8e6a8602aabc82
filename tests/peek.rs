//! A look records nothing, and a reset forgets one key only.

use std::time::Duration;

use support::redis_server::RedisServer;
use tower_throttle::store::{MemoryStore, RedisStore, Store};
use tower_throttle::{ErrorKind, Limiter, Quota};

const LONG: Duration = Duration::from_secs(600);

/// Each algorithm once.
const TEXTS: [&str; 6] = [
    "5/10m",
    "5/10m sliding-buckets buckets=20",
    "5/10m gcra burst=5",
    "5/10m fixed-window start=first-request",
    "5/10m spacing",
    "5/10m leaky-bucket capacity=2",
];

fn limiter(text: &str, store: impl Store) -> Limiter {
    let quota: Quota = text.parse().expect("a quota");
    // By the name, no two of them share their state.
    let builder = Limiter::builder().quota(quota).name(text.replace(' ', "+"));
    builder.store(store).build().expect("a valid policy")
}

async fn tells_what_the_next_request_gets(store: impl Store + Clone) {
    for text in TEXTS {
        let limiter = limiter(text, store.clone());
        let mut granted = 0;
        loop {
            let snapshot = limiter.peek("a").await.expect("a look");
            let again = limiter.peek("a").await.expect("a look").remaining();
            // A unit may become available in between.
            let (least, most) = (snapshot.remaining(), snapshot.remaining() + 1);
            assert!((least..=most).contains(&again), "{text}: {again}");
            let decision = limiter.try_acquire("a").await.expect("a decision");
            if decision.is_granted() && snapshot.delay() < LONG / 20 && !snapshot.delay().is_zero()
            {
                // It became available in between.
                granted += 1;
                continue;
            }
            assert_eq!(
                snapshot.delay().is_zero(),
                decision.is_granted(),
                "{text}: {snapshot:?}"
            );
            assert_eq!(
                snapshot.remaining() > 0,
                decision.is_granted(),
                "{text}: {snapshot:?}"
            );
            let tower_throttle::Decision::Limited(limited) = decision else {
                granted += 1;
                continue;
            };
            // Time passes between the two.
            assert!(limited.delay() <= snapshot.delay(), "{text}");
            assert!(limited.delay() + LONG / 20 > snapshot.delay(), "{text}");
            break;
        }
        assert!((1..=5).contains(&granted), "{text}: {granted}");
        let other = limiter.peek("b").await.expect("a look");
        assert!(
            other.delay().is_zero() && other.reset().is_zero(),
            "{text}: {other:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_tells_what_the_next_request_gets() {
    tells_what_the_next_request_gets(MemoryStore::new()).await;
}

#[tokio::test]
async fn a_look_into_redis_tells_what_the_next_request_gets() {
    let server = RedisServer::start();
    let store = server.store().await;
    tells_what_the_next_request_gets(store).await;
}

#[tokio::test]
async fn a_look_leaves_no_key_behind() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await;
    let store = store.expect("a connection");
    for text in TEXTS {
        let snapshot = limiter(text, store.clone()).peek("a").await;
        assert!(snapshot.expect("a look").delay().is_zero());
    }
    assert_eq!(server.command::<usize>(&["DBSIZE"]), 0);
}

/// Late in a window of the clock, the guard and the buffer leave no room. The next window has all of it.
#[tokio::test(start_paused = true)]
async fn remaining_units_can_depart_at_any_time_of_a_window() {
    let builder = Limiter::builder().buffer(Duration::from_millis(300));
    let quota = "5/s fixed-window".parse().expect("a quota");
    let limiter = builder.quota(quota).build().expect("a valid policy");
    let (mut none, mut all) = (0, 0);
    for round in 0..150 {
        tokio::time::advance(Duration::from_millis(17)).await;
        let key = format!("key-{round}");
        let snapshot = limiter.peek(&*key).await.expect("a look");
        assert_eq!(
            snapshot.delay().is_zero(),
            snapshot.remaining() > 0,
            "{snapshot:?}"
        );
        for _ in 0..snapshot.remaining() {
            let decision = limiter.try_acquire(&*key).await.expect("a decision");
            assert!(decision.is_granted(), "{snapshot:?}");
        }
        let decision = limiter.try_acquire(&*key).await.expect("a decision");
        assert!(!decision.is_granted(), "{snapshot:?}");
        none += u32::from(snapshot.remaining() == 0);
        all += u32::from(snapshot.remaining() == 5);
    }
    assert!(none > 20 && all > 50, "{none}, {all}");
}

async fn forgets_one_key_only(store: impl Store + Clone) {
    for text in TEXTS {
        let limiter = limiter(text, store.clone());
        let other = Limiter::builder()
            .quota(Quota::new(1, LONG * 2))
            .name("other")
            .store(store.clone());
        let other = other.build().expect("a valid policy");
        for key in ["a", "b"] {
            while limiter
                .try_acquire(key)
                .await
                .expect("a decision")
                .is_granted()
            {}
        }
        other.reset("a").await.expect("nothing to forget");
        assert!(
            other
                .try_acquire("a")
                .await
                .expect("a decision")
                .is_granted()
        );
        limiter.reset("a").await.expect("a fresh start");
        let fresh = limiter.peek("a").await.expect("a look");
        assert!(
            fresh.delay().is_zero() && fresh.reset().is_zero(),
            "{text}: {fresh:?}"
        );
        let kept = limiter.peek("b").await.expect("a look");
        assert!(!kept.reset().is_zero(), "{text}: {kept:?}");
        assert!(
            !other
                .try_acquire("a")
                .await
                .expect("a decision")
                .is_granted(),
            "{text}"
        );
    }
    let limiter = limiter("1/s", store);
    assert!(limiter.reset("").await.expect_err("no key").kind() == ErrorKind::EmptyKey);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_one_key_of_one_policy() {
    forgets_one_key_only(MemoryStore::new()).await;
}

#[tokio::test]
async fn a_reset_forgets_one_key_of_one_policy_in_redis() {
    let server = RedisServer::start();
    let store = server.store().await;
    forgets_one_key_only(store).await;
}

#[tokio::test(start_paused = true)]
async fn a_look_respects_the_cost() {
    let limiter = limiter("5/10m", MemoryStore::new());
    limiter.acquire("a").cost(3).await.expect("a permit");
    let look = |cost| limiter.peek("a").cost(cost);
    assert!(look(2).await.expect("a look").delay().is_zero());
    assert!(look(3).await.expect("a look").delay() > LONG / 2);
    assert_eq!(
        look(6).await.expect_err("never").kind(),
        ErrorKind::InvalidCost
    );
    assert_eq!(
        look(0).await.expect_err("never").kind(),
        ErrorKind::InvalidCost
    );
    assert_eq!(
        limiter.peek("").await.expect_err("no key").kind(),
        ErrorKind::EmptyKey
    );
}
