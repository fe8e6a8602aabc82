//! A look tells what the next request gets, and records nothing.

use std::time::Duration;

use support::spend::{attempt, build, under};

const WINDOW: Duration = Duration::from_secs(600);

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
