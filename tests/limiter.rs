//! The limiter on an embedded store, on a paused clock.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt as _, poll};
use support::spend::build;
use tokio::time::{Instant, advance, sleep, timeout};
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Decision, ErrorKind, Limiter, LimiterBuilder, Quota};

const SECOND: Duration = Duration::from_secs(1);
pub(crate) const GUARD: Duration = Duration::from_millis(10);

pub(crate) fn per_second(limit: u32) -> LimiterBuilder {
    Limiter::builder()
        .quota(Quota::per_second(limit))
        .guard(GUARD)
}

/// Waits until no queue is left, so that nothing changes any more.
async fn settle(limiter: &Limiter) {
    while limiter.queues() > 0 {
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn never_lets_more_than_the_limit_go_in_any_window() {
    for (limit, buffer) in [(1, 0), (5, 0), (5, 50), (50, 0)] {
        let limiter = build(per_second(limit).buffer(Duration::from_millis(buffer)));
        let start = Instant::now();
        let count = limit * 4;
        let departs = (0..count).map(|_| async {
            limiter.acquire("a").await.expect("a permit");
            start.elapsed()
        });
        let history: History = join_all(departs).await.into_iter().collect();
        history.assert_at_most(limit.into(), SECOND + Duration::from_millis(buffer));
        let span = history.span().expect("departures");
        let least = (SECOND + GUARD + Duration::from_millis(buffer)) * 3;
        assert!(
            span >= least && span <= least + Duration::from_millis(20),
            "took {span:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_name_the_exact_delay() {
    let limiter = build(per_second(2));
    for left in [1, 0] {
        let Decision::Granted(permit) = limiter.try_acquire("a").await.expect("a decision") else {
            panic!("limited");
        };
        assert_eq!(permit.remaining(), left);
        assert_eq!(permit.reset(), SECOND + GUARD);
        assert_eq!(permit.waited(), Duration::ZERO);
    }
    let Decision::Limited(limited) = limiter.try_acquire("a").await.expect("a decision") else {
        panic!("granted");
    };
    assert_eq!(limited.delay(), SECOND + GUARD);
    assert_eq!(limited.reset(), SECOND + GUARD);
    advance(limited.delay() - Duration::from_micros(1)).await;
    assert!(
        !limiter
            .try_acquire("a")
            .await
            .expect("a decision")
            .is_granted()
    );
    advance(Duration::from_micros(1)).await;
    assert!(
        limiter
            .try_acquire("a")
            .await
            .expect("a decision")
            .is_granted()
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_is_refused_at_once_and_consumes_nothing() {
    let limiter = build(per_second(1).max_wait(SECOND * 2));
    let start = Instant::now();
    let waits = join_all((0..5).map(|_| limiter.acquire("a"))).await;
    let granted: Vec<_> = waits
        .iter()
        .flatten()
        .map(tower_throttle::Permit::waited)
        .collect();
    assert_eq!(granted.len(), 2, "{waits:?}");
    for error in waits.iter().filter_map(|wait| wait.as_ref().err()) {
        assert!(error.is_limited());
        let wait = error.wait().expect("the wait it would have been");
        assert!(
            wait >= (SECOND + GUARD) * 2 && wait < (SECOND + GUARD) * 2 + GUARD,
            "{wait:?}"
        );
    }
    let elapsed = start.elapsed();
    assert!(elapsed < SECOND + GUARD * 2, "{elapsed:?}");
    let error = limiter
        .acquire("a")
        .max_wait(SECOND / 2)
        .await
        .expect_err("no departure so soon");
    assert!(error.is_limited() && error.wait() > Some(SECOND / 2));
    let error = limiter
        .acquire("a")
        .deadline(Instant::now())
        .await
        .expect_err("no time");
    assert!(error.is_limited());
    // The refused requests have not delayed the next one.
    let waited = limiter.acquire("a").await.expect("a permit").waited();
    assert!(
        waited <= SECOND + GUARD + Duration::from_millis(2),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_queue_holds_no_more_requests_than_it_may() {
    let limiter = build(per_second(1).max_waiting(3));
    limiter.acquire("a").await.expect("a permit");
    let mut line = Vec::new();
    for _ in 0..3 {
        let mut waiter = Box::pin(limiter.acquire("a"));
        assert!(poll!(&mut waiter).is_pending());
        line.push(waiter);
    }
    let error = limiter.acquire("a").await.expect_err("the queue is full");
    assert_eq!(error.kind(), ErrorKind::QueueFull);
    assert!(
        !limiter
            .try_acquire("a")
            .await
            .expect("a decision")
            .is_granted()
    );
    limiter.acquire("b").await.expect("a queue of its own");
    line.pop();
    let mut waiter = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut waiter).is_pending(), "a place is free again");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_can_never_depart_is_refused_at_once_and_is_not_limited() {
    let limiter = build(per_second(5).quota(Quota::per_minute(3)));
    for cost in [0, 4, u32::MAX] {
        let error = limiter
            .acquire("a")
            .cost(cost)
            .await
            .expect_err("too costly");
        assert_eq!(error.kind(), ErrorKind::InvalidCost, "{error}");
        let error = limiter
            .try_acquire("a")
            .cost(cost)
            .await
            .expect_err("too costly");
        assert_eq!(error.kind(), ErrorKind::InvalidCost);
    }
    assert!(limiter.acquire("").await.expect_err("no key").kind() == ErrorKind::EmptyKey);
    assert_eq!(
        limiter
            .acquire("a")
            .cost(3)
            .await
            .expect("a permit")
            .remaining(),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_not_valid_for_ever() {
    let limiter = build(per_second(1));
    let permit = limiter.acquire("a").await.expect("a permit");
    assert!(permit.is_valid());
    advance(GUARD - Duration::from_micros(1)).await;
    assert!(permit.is_valid());
    advance(Duration::from_micros(1)).await;
    assert!(!permit.is_valid());
    permit.forfeit();
    assert_eq!(
        limiter.acquire("a").await.expect("a permit").waited(),
        Duration::ZERO
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_request_gets_another_grant_and_keeps_its_place() {
    let limiter = build(per_second(1));
    let start = Instant::now();
    limiter.acquire("a").await.expect("a permit");
    let mut first = Box::pin(limiter.acquire("a"));
    let mut second = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut first).is_pending());
    assert!(poll!(&mut second).is_pending());
    sleep(SECOND / 2).await;
    // All of them sleep through the first departure and its guard.
    advance(SECOND).await;
    let first = async { (first.await.expect("a permit"), start.elapsed()) };
    let second = async { (second.await.expect("a permit"), start.elapsed()) };
    let ((_, first), (_, second)) = tokio::join!(first, second);
    let history: History = [Duration::ZERO, first, second].into_iter().collect();
    history.assert_at_most(1, SECOND);
    assert!(first < second);
    assert!(second < SECOND * 4, "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_when_a_key_falls_idle() {
    let limiter = build(per_second(1));
    for _ in 0..3 {
        let waits = (0..20).map(|number| {
            let limiter = limiter.clone();
            async move {
                join_all((0..2).map(|_| limiter.acquire(format!("key {number}")))).await;
            }
        });
        join_all(waits).await;
        settle(&limiter).await;
    }
    let metrics = tokio::runtime::Handle::current().metrics();
    let no_task = async {
        while metrics.num_alive_tasks() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(SECOND, no_task).await.expect("no task is left");
}

/// Each call returns a decision or an error, and no call waits.
#[test]
fn many_threads_without_a_runtime_decide_and_leave_nothing_behind() {
    const UNITS: u32 = 1_000;
    let limiter = build(Limiter::builder().quota(Quota::per_hour(UNITS)));
    let granted = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..32 {
            let (limiter, granted) = (&limiter, &granted);
            scope.spawn(move || {
                for round in 0..200 {
                    let decision = limiter.try_acquire("a").now_or_never();
                    match decision.expect("an answer at once") {
                        Ok(Decision::Granted(permit)) if (number + round) % 3 == 0 => {
                            permit.forfeit();
                        }
                        Ok(Decision::Granted(_)) => {
                            granted.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(Decision::Limited(_)) => {}
                        Err(error) => assert!(error.is_store(), "{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(limiter.queues(), 0);
    let snapshot = limiter.peek("a").now_or_never().expect("an answer at once");
    let spent = UNITS - snapshot.expect("a look").remaining();
    assert_eq!(spent, granted.into_inner());
}

/// The task of a request at the head works for longer than the guard before it polls its request. Costs alternate.
#[tokio::test(start_paused = true)]
async fn requests_depart_in_their_order_behind_one_that_is_late() {
    let store = MemoryStore::new();
    let quota = Quota::new(6, Duration::from_millis(200));
    let [limiter, other] =
        [(); 2].map(|()| build(Limiter::builder().quota(quota).store(store.clone())));
    let departed = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for place in 0..24_u32 {
        let limiter = if place % 3 == 2 { &other } else { &limiter };
        let acquire = limiter.acquire("a").cost(1 + place % 2);
        let (mut acquire, departed) = (Box::pin(acquire), departed.clone());
        let mut polls = 0;
        tasks.push(tokio::spawn(async move {
            poll_fn(|cx| {
                polls += 1;
                if place == 0 || (place == 9 && polls == 2) {
                    // The time passes before the others are polled.
                    let works = advance(Duration::from_millis(60));
                    assert!(pin!(works).poll(cx).is_pending());
                }
                acquire.as_mut().poll(cx)
            })
            .await
            .expect("a permit");
            departed.lock().expect("no panic").push(place);
        }));
        tokio::task::yield_now().await;
    }
    join_all(tasks).await;
    let departed = departed.lock().expect("no panic");
    for is_other in [false, true] {
        let places = departed
            .iter()
            .filter(|place| (**place % 3 == 2) == is_other);
        assert!(places.is_sorted(), "{departed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_requests_depart_in_their_order() {
    let limiter = build(per_second(30));
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..1_000 {
        let (limiter, order) = (limiter.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            limiter.acquire("a").await.expect("a permit");
            order.lock().expect("no panic").push(number);
        }));
        tokio::task::yield_now().await;
    }
    join_all(tasks).await;
    assert_eq!(
        *order.lock().expect("no panic"),
        (0..1_000).collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_moves_the_others_up() {
    let limiter = build(per_second(1));
    limiter.acquire("a").await.expect("a permit");
    let mut waiters: Vec<_> = (0..4).map(|_| Box::pin(limiter.acquire("a"))).collect();
    for waiter in &mut waiters {
        assert!(poll!(waiter).is_pending());
    }
    sleep(SECOND / 2).await;
    waiters.drain(..2);
    let waits = join_all(waiters).await;
    for (place, permit) in (1..).zip(&waits) {
        let waited = permit.as_ref().expect("a permit").waited();
        let due = (SECOND + GUARD) * place;
        assert!(waited >= due && waited < due + GUARD, "{waited:?}");
    }
    settle(&limiter).await;
    let waited = limiter.acquire("a").await.expect("a permit").waited();
    assert!(waited <= SECOND + GUARD + GUARD, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn cancelling_all_requests_leaves_nothing_behind() {
    let limiter = build(per_second(1));
    limiter.acquire("a").await.expect("a permit");
    let mut waiters: Vec<_> = (0..500).map(|_| Box::pin(limiter.acquire("a"))).collect();
    for waiter in &mut waiters {
        assert!(poll!(waiter).is_pending());
    }
    sleep(SECOND / 10).await;
    // First those in the middle, then the others.
    waiters.drain(100..300);
    waiters.clear();
    settle(&limiter).await;
    let Decision::Limited(limited) = limiter.try_acquire("a").await.expect("a decision") else {
        panic!("granted");
    };
    assert!(limited.delay() <= SECOND, "{limited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_request_never_overtakes_the_queue() {
    let limiter = build(per_second(2));
    let waiting: Vec<_> = (0..6).map(|_| limiter.acquire("a")).collect();
    let queue = tokio::spawn(join_all(waiting));
    for _ in 0..2_500 {
        sleep(Duration::from_millis(1)).await;
        if queue.is_finished() {
            return;
        }
        let Decision::Limited(limited) = limiter.try_acquire("a").await.expect("a decision") else {
            panic!("overtook the queue");
        };
        assert!(limited.delay() > Duration::ZERO);
        assert_eq!(limited.remaining(), 0);
    }
    panic!("the queue is not served");
}
