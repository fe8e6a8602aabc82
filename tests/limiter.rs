//! The limiter on an embedded store, on a paused clock: requests that wait, looks, and functions that it calls.

use std::cell::Cell;
use std::pin::Pin;
use std::thread;

use tower_throttle::{Acquire, Decision};

use crate::prelude::*;

pub(crate) const GUARD: Duration = Duration::from_millis(10);

/// The distance between departures with a limit of 1.
pub(crate) const STEP: Duration = Duration::from_millis(1_010);

pub(crate) async fn waiter(limiter: &Limiter) -> Pin<Box<Acquire>> {
    let mut waiter = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut waiter).is_pending());
    waiter
}

pub(crate) fn per_second(limit: u32) -> LimiterBuilder {
    crate::prelude::per_second(limit).guard(GUARD)
}

/// So many requests for the key `a`, in their order of arrival. Each task returns the time of its departure.
pub(crate) async fn queue(limiter: &Limiter, count: usize) -> Vec<JoinHandle<Instant>> {
    let mut queue = Vec::new();
    for _ in 0..count {
        let acquire = limiter.acquire("a");
        queue.push(tokio::spawn(async move {
            let _departs = acquire.await.expect("a permit");
            Instant::now()
        }));
        // So that they arrive in this order.
        tokio::task::yield_now().await;
    }
    queue
}

pub(crate) async fn departures(queue: Vec<JoinHandle<Instant>>) -> Vec<Instant> {
    let departures = join_all(queue).await.into_iter();
    departures.map(|it| it.expect("no panic")).collect()
}

#[tokio::test(start_paused = true)]
async fn requests_depart_in_their_order_at_the_rate_and_never_faster() {
    for (limit, buffer, windows) in [(1, 0, 4), (5, 0, 4), (5, 50, 4), (50, 0, 20)] {
        let buffer = Duration::from_millis(buffer);
        let limiter = build(per_second(limit).buffer(buffer));
        let queue = queue(&limiter, (limit * windows) as usize).await;
        let departures = departures(queue).await;
        assert!(departures.is_sorted(), "{departures:?}");
        let history: History = departures.into_iter().collect();
        history.assert_at_most(limit.into(), SECOND + buffer);
        let span = history.span().expect("departures");
        let least = (SECOND + GUARD + buffer) * (windows - 1);
        let most = least + Duration::from_millis(5) * windows;
        assert!((least..=most).contains(&span), "took {span:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_is_refused_at_once_and_consumes_nothing() {
    let limiter = build(per_second(1).max_wait(SECOND * 2));
    let start = Instant::now();
    let waits = join_all((0..5).map(|_| limiter.acquire("a"))).await;
    assert_eq!(waits.iter().flatten().count(), 2, "{waits:?}");
    for error in waits.iter().filter_map(|wait| wait.as_ref().err()) {
        assert!(error.is_limited());
        let wait = error.wait().expect("the wait it would have been");
        let least = (SECOND + GUARD) * 2;
        assert!(wait >= least && wait < least + GUARD, "{wait:?}");
    }
    assert!(start.elapsed() < SECOND + GUARD * 2);
    let bounded = limiter.acquire("a").max_wait(SECOND / 2).await;
    let error = bounded.expect_err("no departure so soon");
    assert!(error.is_limited() && error.wait() > Some(SECOND / 2));
    let late = limiter.acquire("a").deadline(Instant::now()).await;
    assert!(late.expect_err("no time").is_limited());
    // The refused requests have not delayed the next one.
    let waited = limiter.acquire("a").await.expect("a permit").waited();
    assert!(waited < SECOND + GUARD * 2, "{waited:?}");
    // The first answer of a store may be later than the bound.
    let slow = FailingStore::new(MemoryStore::new()).latency(200 * MS);
    let slow = build(per_second(1).max_wait(10 * MS).store(slow));
    slow.acquire("a").await.expect("a permit");
    let error = slow.acquire("a").await.expect_err("no departure so soon");
    assert!(error.is_limited());
}

#[tokio::test(start_paused = true)]
async fn the_queue_holds_no_more_requests_than_it_may_and_none_overtakes_it() {
    let limiter = build(per_second(1).max_waiting(3));
    limiter.acquire("a").await.expect("a permit");
    let mut queue = Vec::new();
    for _ in 0..3 {
        queue.push(waiter(&limiter).await);
    }
    let error = limiter.acquire("a").await.expect_err("the queue is full");
    assert_eq!(error.kind(), ErrorKind::QueueFull);
    attempt(&limiter, "b", 1).await.expect("a key of its own");
    queue.pop();
    queue.push(waiter(&limiter).await);
    let queue = tokio::spawn(join_all(queue));
    while !queue.is_finished() {
        let limited = attempt(&limiter, "a", 1).await;
        let limited = limited.expect_err("it overtook the queue");
        assert!(limited.delay() > Duration::ZERO && limited.remaining() == 0);
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cost_counts_and_a_request_that_can_never_depart_is_refused_and_is_not_limited() {
    let limiter = build(per_second(5).quota(Quota::per_minute(3)));
    for (key, cost, kind) in [
        ("a", 0, ErrorKind::InvalidCost),
        ("a", 4, ErrorKind::InvalidCost),
        ("a", u32::MAX, ErrorKind::InvalidCost),
        ("", 1, ErrorKind::EmptyKey),
    ] {
        let errors = [
            limiter.acquire(key).cost(cost).await.err(),
            limiter.acquire(key).cost(cost).now().await.err(),
            limiter.acquire(key).cost(cost).peek().await.err(),
        ];
        for error in errors {
            assert_eq!(error.expect("an error").kind(), kind, "{cost}");
        }
    }
    let error = limiter.reset("").await.expect_err("no key");
    assert_eq!(error.kind(), ErrorKind::EmptyKey);
    let permit = limiter.acquire("a").cost(2).await.expect("a permit");
    assert_eq!(permit.remaining(), 1);
    for (cost, departs) in [(1, true), (2, false)] {
        let look = limiter.acquire("a").cost(cost).peek().await;
        assert_eq!(look.expect("a look").delay().is_zero(), departs);
    }
}

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

#[tokio::test(start_paused = true)]
async fn a_function_that_is_refused_or_given_up_is_not_called_and_consumes_nothing() {
    let limiter = build(under(&["4/s"]));
    let calls = Cell::new(0);
    let call = || async { calls.set(calls.get() + 1) };
    let dear = || limiter.acquire("a").cost(3);
    dear().run(call).await.expect("a call");

    let error = dear().max_wait(SECOND / 2).run(call).await.unwrap_err();
    assert!(error.is_limited() && error.wait() > Some(SECOND / 2));
    let error = limiter.run("", call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::EmptyKey, "{error}");
    let given_up = timeout(SECOND / 2, dear().run(call)).await;
    given_up.expect_err("it waits");
    assert_eq!(limiter.peek("a").await.expect("a look").remaining(), 1);
    sleep(SECOND * 5).await;
    assert_eq!(calls.get(), 1);
    let start = Instant::now();
    dear().run(call).await.expect("a call");
    assert!(start.elapsed().is_zero() && calls.get() == 2);
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
