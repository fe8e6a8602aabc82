//! `Outage::Local`: each process counts by itself, with its share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_throttle::test_util::Fault;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Outage, Quota};

use super::{FAULTS, LIMIT, WINDOW, assert_out, fail, limiter, recover, store};

const SHARE: u32 = 3;
const LOCAL: Outage = Outage::Local { share: 0.3 };

/// The departures of each replica, whose callers ask without end, while the store has these faults.
async fn departures(phases: &[(Option<Fault>, u64)], replicas: u32) -> Vec<History> {
    let store = store();
    let start = Instant::now();
    let mut callers = JoinSet::new();
    let departed: Vec<_> = (0..replicas)
        .map(|_| Arc::new(Mutex::new(Vec::new())))
        .collect();
    for departed in &departed {
        let limiter = limiter(&store, LOCAL);
        for _ in 0..20 {
            let (limiter, departed) = (limiter.clone(), departed.clone());
            callers.spawn(async move {
                loop {
                    let permit = limiter.acquire("a").await.expect("it waits or counts");
                    assert!(permit.is_valid());
                    departed.lock().expect("no panic").push(start.elapsed());
                }
            });
        }
    }
    for &(fault, millis) in phases {
        match fault {
            Some(fault) => fail(&store, fault),
            None => recover(&store),
        }
        sleep(Duration::from_millis(millis)).await;
    }
    callers.shutdown().await;
    let history = |departed: &Arc<Mutex<Vec<Duration>>>| {
        let departed = departed.lock().expect("no panic");
        departed.iter().map(|&at| (at, 1)).collect()
    };
    departed.iter().map(history).collect()
}

#[tokio::test(start_paused = true)]
async fn no_window_holds_more_than_the_quota_and_the_share() {
    for fault in FAULTS {
        let phases = [
            (None, 2_500),
            (Some(fault), 4_200),
            (None, 3_300),
            (Some(fault), 5_700),
            (None, 4_000),
        ];
        let [history] = &departures(&phases, 1).await[..] else {
            panic!("one replica");
        };
        history.assert_at_most(u64::from(LIMIT + SHARE), WINDOW);
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_keep_to_their_shares_while_it_lasts() {
    let phases = [(None, 2_000), (Some(Fault::Unreachable), 20_000)];
    for history in departures(&phases, 3).await {
        // Departures that the store has granted are over by then.
        let is_during = |at: &Duration| *at > Duration::from_secs(10);
        let during: History = history
            .times()
            .filter(is_during)
            .map(|at| (at, 1))
            .collect();
        during.assert_at_most(SHARE.into(), WINDOW);
        assert!(during.len() >= 3 * 10, "{}", during.len());
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_go_back_to_the_store_in_their_order() {
    let store = store();
    let limiter = limiter(&store, LOCAL);
    fail(&store, Fault::Unreachable);
    let mut waiting = Vec::new();
    for place in 0..40_u32 {
        let limiter = limiter.clone();
        waiting.push(tokio::spawn(async move {
            limiter.acquire("a").await.expect("a permit");
            (Instant::now(), place)
        }));
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_secs(2)).await;
    recover(&store);
    let back = Instant::now();
    let departed = join_all(waiting).await.into_iter();
    let departed: Vec<_> = departed.map(|it| it.expect("no panic")).collect();
    assert!(departed.is_sorted(), "{departed:?}");
    // By the share alone, the last would take ten seconds more.
    let last = departed.last().expect("there are some").0;
    assert!(last - back < Duration::from_secs(6), "{:?}", last - back);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_costs_more_than_the_share_fails() {
    let store = store();
    let limiter = limiter(&store, LOCAL);
    fail(&store, Fault::Unreachable);
    limiter.acquire("a").cost(SHARE).await.expect("its share");
    assert_out(limiter.acquire("a").cost(SHARE + 1).await);
}

#[tokio::test(start_paused = true)]
async fn peek_and_pause_use_the_fallback_store() {
    let store = store();
    let limiter = limiter(&store, LOCAL);
    fail(&store, Fault::Unreachable);
    limiter.acquire("a").await.expect("its share");
    assert_eq!(
        limiter.peek("a").await.expect("an answer").remaining(),
        SHARE - 1
    );
    let until = Instant::now() + 5 * WINDOW;
    limiter
        .pause("a", until)
        .await
        .expect_err("the store is out");
    assert!(limiter.peek("a").await.expect("an answer").delay() > 4 * WINDOW);
    limiter.resume("a").await.expect_err("the store is out");
    assert!(
        limiter
            .peek("a")
            .await
            .expect("an answer")
            .delay()
            .is_zero()
    );
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
            let limiter = Limiter::builder().quota(quota).store(store.clone());
            let limiter = limiter.outage(Outage::Local { share }).build();
            limiter.expect("a valid policy")
        });
        let limiters: Vec<_> = limiters.collect();
        let start = Instant::now();
        let mut departed = 0;
        while start.elapsed() < WINDOW * SECONDS {
            let mut now = 0;
            for limiter in &limiters {
                let ask = async || limiter.try_acquire("a").await.expect("its share");
                while ask().await.is_granted() {
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
