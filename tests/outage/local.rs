//! Each process counts by itself, with its share.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Outage, Quota};

use super::support::switched::{Mode, Switched};
use super::{LIMIT, WINDOW, assert_out, limiter};

const SHARE: u32 = 3;
const LOCAL: Outage = Outage::Local { share: 0.3 };

/// What departed, of callers that ask without end, while the store does this and that.
async fn departures(phases: &[(Mode, u64)], replicas: u32) -> Vec<History> {
    let store = Switched::default();
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
    for &(mode, millis) in phases {
        store.switch(mode);
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
    for mode in [Mode::Refuses, Mode::Hangs, Mode::IsReadOnly] {
        let phases = [
            (Mode::Works, 2_500),
            (mode, 4_200),
            (Mode::Works, 3_300),
            (mode, 5_700),
            (Mode::Works, 4_000),
        ];
        let [history] = &departures(&phases, 1).await[..] else {
            panic!("one replica");
        };
        history.assert_at_most(u64::from(LIMIT + SHARE), WINDOW);
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_keep_to_their_shares_while_it_lasts() {
    let phases = [(Mode::Works, 2_000), (Mode::Refuses, 20_000)];
    for history in departures(&phases, 3).await {
        // Those that waited with slots of the store have left by then.
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
async fn who_waits_goes_back_to_the_store_in_order_of_arrival() {
    let store = Switched::default();
    let limiter = limiter(&store, LOCAL);
    store.switch(Mode::Refuses);
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
    store.switch(Mode::Works);
    let back = Instant::now();
    let departed = join_all(waiting).await.into_iter();
    let departed: Vec<_> = departed.map(|it| it.expect("no panic")).collect();
    assert!(departed.is_sorted(), "{departed:?}");
    // By their share alone, it would take the last of them ten seconds more.
    let last = departed.last().expect("there are some").0;
    assert!(last - back < Duration::from_secs(6), "{:?}", last - back);
}

/// Three to one: by its share, nobody departs for a while after the first.
async fn with_share_spent(store: &Switched) -> Limiter {
    let quota = Quota::new(3, Duration::from_secs(60));
    let limiter = Limiter::builder().quota(quota).outage(LOCAL);
    let limiter = limiter.store(store.clone()).build();
    let limiter = limiter.expect("a valid policy");
    store.switch(Mode::Refuses);
    limiter.acquire("a").await.expect("its share");
    limiter
}

#[tokio::test(start_paused = true)]
async fn who_learns_of_an_outage_when_it_is_over_waits_for_the_store() {
    let store = Switched::default();
    let limiter = with_share_spent(&store).await;
    store.switch(Mode::Works);
    while limiter.health().is_out() {
        sleep(Duration::from_millis(10)).await;
    }
    let start = Instant::now();
    store.switch(Mode::Refuses);
    // The second makes a task serve the line, so that it is refused without being polled.
    let mut first = pin!(limiter.acquire("a"));
    let mut second = pin!(limiter.acquire("a"));
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    while !limiter.health().is_out() {
        sleep(Duration::from_millis(1)).await;
    }
    store.switch(Mode::Works);
    while limiter.health().is_out() {
        sleep(Duration::from_millis(10)).await;
    }
    first.await.expect("a slot of the store");
    second.await.expect("a slot of the store");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn nobody_goes_to_and_fro_between_a_store_that_panics_and_its_share() {
    let store = Switched::default();
    let limiter = with_share_spent(&store).await;
    store.switch(Mode::Panics);
    while limiter.health().is_out() {
        sleep(Duration::from_millis(10)).await;
    }
    limiter.acquire("a").await.expect("its share");
    let (_, asked) = store.asked();
    assert!(asked < 10, "{asked} calls");
}

#[tokio::test(start_paused = true)]
async fn what_costs_more_than_the_share_fails() {
    let store = Switched::default();
    let limiter = limiter(&store, LOCAL);
    store.switch(Mode::Refuses);
    limiter.acquire("a").cost(SHARE).await.expect("its share");
    assert_out(limiter.acquire("a").cost(SHARE + 1).await);
}

#[tokio::test(start_paused = true)]
async fn quotas_that_change_meanwhile_change_the_share() {
    let store = Switched::default();
    let limiter = limiter(&store, LOCAL);
    store.switch(Mode::Refuses);
    limiter.acquire("a").await.expect("its share");
    limiter
        .set_quota(Quota::new(100, WINDOW))
        .expect("a valid quota");
    let start = Instant::now();
    for _ in 0..30 {
        limiter.acquire("a").await.expect("its share");
    }
    assert!(start.elapsed() < WINDOW / 2);
    limiter.acquire("a").await.expect("its share");
    assert!(start.elapsed() >= WINDOW);
}

#[tokio::test(start_paused = true)]
async fn peek_and_pause_are_of_what_stands_in() {
    let store = Switched::default();
    let limiter = limiter(&store, LOCAL);
    store.switch(Mode::Refuses);
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

#[test]
fn a_share_that_is_none_is_refused() {
    let build = |limiter: tower_throttle::LimiterBuilder| {
        let quota = Quota::per_second(1);
        limiter
            .quota(quota)
            .outage(Outage::Local { share: 0.0 })
            .build()
    };
    let error = build(Limiter::builder()).expect_err("no share");
    assert_eq!(
        error.to_string(),
        "outage: a share of 0 is not above 0 and up to 1"
    );
}

/// However small its share: the rate is kept all the same.
#[tokio::test(start_paused = true)]
async fn as_many_depart_together_as_the_quota_allows_or_one_of_each_replica() {
    for (quota, replicas, together) in [
        ("10/s", 3, 10),
        ("2/s", 3, 3),
        ("10/s", 20, 20),
        ("10/s sliding-buckets buckets=10", 20, 20),
        ("10/s fixed-window start=first-request", 20, 20),
        ("10/s spacing", 3, 3),
        ("10/s gcra burst=6", 3, 6),
        ("10/s gcra burst=2", 5, 5),
        ("10/s leaky-bucket capacity=6", 3, 6),
        ("10/s leaky-bucket capacity=2", 5, 5),
    ] {
        const SECONDS: u32 = 10;
        let quota: Quota = quota.parse().expect("a quota");
        let store = Switched::default();
        store.switch(Mode::Refuses);
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
                while limiter
                    .try_acquire("a")
                    .await
                    .expect("its share")
                    .is_granted()
                {
                    now += 1;
                }
            }
            departed += now;
            assert!(now <= together, "{quota} by {replicas}: {now} at once");
            sleep(WINDOW / 100).await;
        }
        let most = together + quota.limit() * SECONDS;
        assert!(
            departed <= most,
            "{quota} by {replicas}: {departed} of {most}"
        );
        assert!(departed >= most / 2, "{quota} by {replicas}: {departed}");
    }
}
