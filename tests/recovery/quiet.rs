//! Where nothing is lost, no key rests.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::{LIMIT, MAX_WAIT, REST, WINDOW, rested, strict};
use support::load::Load;
use support::redis_server::RedisServer;
use support::spend::attempt;

/// A new server rests once, as long as a key would.
#[tokio::test]
async fn a_store_that_was_never_used_rests_once() {
    let server = RedisServer::start();
    let limiter = strict(&server).await;
    let start = Instant::now();
    rested(&limiter).await;
    assert!(start.elapsed() >= REST);
    // Other keys and other processes do not rest again.
    let another = strict(&server).await;
    attempt(&another, "b", 1).await.expect("no rest");
    let ttl: i64 = server.command(&["PTTL", "throttle:created"]);
    assert!(ttl > 0, "every key expires");
}

#[tokio::test]
async fn traffic_that_comes_and_goes_is_never_held_up() {
    let server = RedisServer::start();
    let limiters = [strict(&server).await, strict(&server).await];
    rested(&limiters[0]).await;
    let start = Instant::now();
    let mut round = 0_u32;
    while start.elapsed() < Duration::from_secs(5) {
        round += 1;
        let load = Load::of("a", &limiters);
        // Requests that are cancelled, and permits that are not used.
        let giving_up = limiters[0].acquire("a");
        let _ = timeout(Duration::from_millis(3), giving_up).await;
        if let Ok(permit) = limiters[1].acquire("a").await {
            permit.forfeit();
        }
        let before = load.departures();
        sleep(WINDOW * 2).await;
        let after = load.departures();
        // Half of what the quota allows, at least, on a busy machine; none if it rested.
        assert!(
            after - before >= LIMIT as usize / 2,
            "round {round}: {before} to {after}"
        );
        load.history().await.assert_at_most(LIMIT.into(), WINDOW);
        if round.is_multiple_of(3) {
            // Until no departure counts any more.
            sleep(WINDOW * 3).await;
        }
    }
}

#[tokio::test]
async fn a_pause_is_no_loss() {
    let server = RedisServer::start();
    let limiters = [strict(&server).await, strict(&server).await];
    rested(&limiters[0]).await;
    let load = Load::of("a", &limiters);
    load.goes_on(LIMIT as usize).await;
    for (windows, is_resumed) in [(1, false), (1, false), (100, true)] {
        let until = Instant::now() + WINDOW * windows;
        limiters[1].pause("a", until).await.expect("a pause");
        sleep(WINDOW).await;
        if is_resumed {
            limiters[0].resume("a").await.expect("no pause");
        }
        let waited = load.goes_on(LIMIT as usize).await;
        assert!(waited < MAX_WAIT + WINDOW, "{waited:?}");
    }
    load.history().await.assert_at_most(LIMIT.into(), WINDOW);
}
