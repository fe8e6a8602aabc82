//! A look tells what the next request gets, and records nothing.

use std::time::Duration;

use support::redis_server::RedisServer;
use support::spend::{attempt, build, under};

const WINDOW: Duration = Duration::from_secs(600);

/// Each algorithm once.
const TEXTS: [&str; 6] = [
    "5/10m",
    "5/10m sliding-buckets buckets=20",
    "5/10m gcra burst=5",
    "5/10m fixed-window start=first-request",
    "5/10m spacing",
    "5/10m leaky-bucket capacity=2",
];

#[tokio::test]
async fn a_look_tells_what_the_next_request_gets() {
    let server = RedisServer::start();
    let store = server.store().await;
    let exists = |key: &str| server.command::<bool>(&["EXISTS", &format!("throttle:{{{key}}}")]);
    for (text, key) in TEXTS.into_iter().zip('a'..) {
        let (limiter, key) = (build(under(&[text]).store(store.clone())), key.to_string());
        let look = async |key: &str| limiter.peek(key).await.expect("a look");
        let mut granted = 0;
        loop {
            let snapshot = look(&key).await;
            // A unit may become available in between.
            let again = look(&key).await.remaining();
            assert!(again == snapshot.remaining() || again == snapshot.remaining() + 1);
            assert_eq!(exists(&key), granted > 0, "a look leaves no key behind");
            match attempt(&limiter, &key, 1).await {
                Ok(_) => assert!(snapshot.delay() < WINDOW / 20, "{text}: {snapshot:?}"),
                Err(limited) => {
                    assert_eq!(snapshot.remaining(), 0, "{text}: {snapshot:?}");
                    assert!(limited.delay() <= snapshot.delay(), "{text}");
                    assert!(limited.delay() + WINDOW / 20 > snapshot.delay(), "{text}");
                    break;
                }
            }
            granted += 1;
        }
        assert!((1..=5).contains(&granted), "{text}: {granted}");
        let other = look("other").await;
        assert!(other.delay().is_zero() && other.reset().is_zero(), "{text}");
    }
}

/// Late in a window of the clock, the guard and the buffer leave no room. The next window has all of it.
#[tokio::test(start_paused = true)]
async fn remaining_units_can_depart_at_any_time_of_a_window() {
    let limiter = build(under(&["5/s fixed-window"]).buffer(Duration::from_millis(300)));
    let (mut none, mut all) = (0, 0);
    for round in 0..150 {
        tokio::time::advance(Duration::from_millis(17)).await;
        let key = format!("key-{round}");
        let snapshot = limiter.peek(&*key).await.expect("a look");
        assert_eq!(snapshot.delay().is_zero(), snapshot.remaining() > 0);
        for _ in 0..snapshot.remaining() {
            attempt(&limiter, &key, 1).await.expect("a permit");
        }
        attempt(&limiter, &key, 1).await.expect_err("none remains");
        none += u32::from(snapshot.remaining() == 0);
        all += u32::from(snapshot.remaining() == 5);
    }
    assert!(none > 20 && all > 50, "{none}, {all}");
}

#[tokio::test(start_paused = true)]
async fn a_look_respects_the_cost() {
    let limiter = build(under(&["5/10m"]));
    limiter.acquire("a").cost(3).await.expect("a permit");
    let look = async |cost| {
        limiter
            .acquire("a")
            .cost(cost)
            .peek()
            .await
            .expect("a look")
    };
    assert!(look(2).await.delay().is_zero());
    assert!(look(3).await.delay() > WINDOW / 2);
}
