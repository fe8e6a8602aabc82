//! `Outage::Local`: each process counts by itself, with its share.

use std::time::Duration;

use futures_util::future::join_all;
use support::load::{Load, since};
use support::spend::{attempt, build};
use tokio::time::{Instant, sleep};
use tower_throttle::test_util::Fault;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Outage, Quota};

use super::{FAULTS, LIMIT, WINDOW, assert_out, fail, last, limiter, queue, recover, store};

const SHARE: u32 = 3;
const LOCAL: Outage = Outage::Local { share: 0.3 };

/// The departures of each replica, whose callers ask without end, while the store has these faults for so long.
async fn departures(phases: &[(Option<Fault>, u64)], replicas: u32) -> Vec<History> {
    let store = store();
    let limiters = (0..replicas).map(|_| limiter(&store, LOCAL));
    let loads: Vec<_> = limiters.map(|limiter| Load::of("a", [&limiter])).collect();
    for &(fault, millis) in phases {
        match fault {
            Some(fault) => fail(&store, fault),
            None => recover(&store),
        }
        sleep(Duration::from_millis(millis)).await;
    }
    join_all(loads.into_iter().map(Load::history)).await
}

#[tokio::test(start_paused = true)]
async fn no_window_holds_more_than_the_quota_and_the_share() {
    for fault in FAULTS.map(Some) {
        let phases = [
            (None, 2_500),
            (fault, 4_200),
            (None, 3_300),
            (fault, 5_700),
            (None, 4_000),
        ];
        let histories = departures(&phases, 1).await;
        histories[0].assert_at_most(u64::from(LIMIT + SHARE), WINDOW);
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_keep_to_their_shares_while_it_lasts() {
    let phases = [(None, 2_000), (Some(Fault::Unreachable), 20_000)];
    for history in departures(&phases, 3).await {
        // Departures that the store has granted are over by then.
        let during = since(&history, Duration::from_secs(10));
        during.assert_at_most(SHARE.into(), WINDOW);
        assert!(during.len() >= 3 * 10, "{}", during.len());
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_go_back_to_the_store_in_their_order() {
    let store = store();
    let limiter = limiter(&store, LOCAL);
    fail(&store, Fault::Unreachable);
    let queue = queue(&limiter, 60).await;
    recover(&store);
    let back = Instant::now();
    // By the share alone, the last would take sixteen seconds more.
    let last = last(queue).await - back;
    assert!(last < Duration::from_secs(8), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn looks_pauses_and_costs_are_those_of_the_share() {
    let store = store();
    let limiter = limiter(&store, LOCAL);
    let look = async || limiter.peek("a").await.expect("an answer");
    fail(&store, Fault::Unreachable);
    assert_out(limiter.acquire("a").cost(SHARE + 1).await);
    limiter.acquire("a").await.expect("its share");
    assert_eq!(look().await.remaining(), SHARE - 1);
    let pause = limiter.pause("a", Instant::now() + 5 * WINDOW).await;
    pause.expect_err("the store is out");
    assert!(look().await.delay() > 4 * WINDOW);
    limiter.resume("a").await.expect_err("the store is out");
    assert!(look().await.delay().is_zero());
}

/// A share of less than one request keeps the rate.
#[tokio::test(start_paused = true)]
async fn as_many_depart_together_as_the_quota_allows_or_one_of_each_replica() {
    const SECONDS: u32 = 10;
    for (quota, replicas, together) in [
        ("10/s", 20, 20),
        ("10/s gcra burst=6", 3, 6),
        ("10/s leaky-bucket capacity=2", 5, 5),
    ] {
        let quota: Quota = quota.parse().expect("a quota");
        let store = store();
        fail(&store, Fault::Unreachable);
        let share = 1.0 / f64::from(replicas);
        let limiters = (0..replicas).map(|_| {
            let builder = Limiter::builder().quota(quota).store(store.clone());
            build(builder.outage(Outage::Local { share }))
        });
        let limiters: Vec<_> = limiters.collect();
        let start = Instant::now();
        let mut departed = 0;
        while start.elapsed() < WINDOW * SECONDS {
            let mut now = 0;
            for limiter in &limiters {
                while attempt(limiter, "a", 1).await.is_ok() {
                    now += 1;
                }
            }
            departed += now;
            assert!(now <= together, "{quota} by {replicas}: {now} at once");
            sleep(WINDOW / 100).await;
        }
        let most = together + quota.limit() * SECONDS;
        assert!(
            (most / 2..=most).contains(&departed),
            "{quota} by {replicas}: {departed} of {most}"
        );
    }
}
