//! Spacing, GCRA and leaky buckets: one after the other, without a queue or a lock.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;
use tower_throttle::key::Key;
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, LimiterBuilder};

use crate::support::command_stats::CommandStats;
use crate::support::monitor::Monitor;
use crate::support::redis_server::RedisServer;
use crate::support::slots::slots;
use crate::{
    LONG, MS, PATIENCE, SECOND, ask, depart, granted, limiter, policy, quota, reserve, store, waits,
};

/// The simple way serves one request at a time; here any number waits, and each is told its time.
#[tokio::test]
async fn spacing_serves_any_number_of_waiters_one_interval_apart() {
    let server = RedisServer::start();
    let builder = quota(50, SECOND, Algorithm::Spacing);
    let replicas = [
        limiter(&server, builder.clone()).await,
        limiter(&server, builder).await,
    ];
    let waiters = replicas
        .iter()
        .flat_map(|it| (0..30).map(move |_| depart(it, "a")));
    let departed: History = join_all(waiters).await.into_iter().collect();
    assert_eq!(departed.len(), 60);
    departed.assert_at_most(1, SECOND / 50);
}

/// Elsewhere in whole seconds, so that more requests than seconds are counted wrong; under a lock per
/// call, and who does not get it is refused.
#[tokio::test]
async fn gcra_is_exact_to_the_microsecond_and_takes_no_lock() {
    let server = RedisServer::start();
    let stores = [
        store(&server).await,
        store(&server).await,
        store(&server).await,
    ];
    slots(
        &stores[0],
        &Key::from("warm-up"),
        &policy(gcra(1, SECOND)),
        1,
    )
    .await;
    for (limit, window) in [(300, SECOND * 2), (1_000, SECOND), (7, MS(30)), (2, SECOND)] {
        let (key, policy) = (Key::from("a"), policy(gcra(limit, window)));
        let monitor = Monitor::start(&server);
        let calls = (0..50).map(|call| slots(&stores[call % 3], &key, &policy, 10));
        let mut slots = join_all(calls).await.concat();
        let seen = monitor.finish(&server);
        assert_eq!(seen.client_commands(), seen.calls("evalsha"));
        assert!(seen.client_commands() <= 50, "{seen:?}");

        slots.sort_by_key(|slot| slot.at);
        assert_eq!(slots.len(), 500);
        let interval = (window.as_micros() as u64).div_ceil(limit.into());
        for (place, first) in slots.iter().enumerate() {
            for (count, last) in (1..).zip(&slots[place..]) {
                let span = last.at.saturating_sub(first.record);
                assert!(
                    count <= u64::from(BURST) + span / interval,
                    "{first:?}, {last:?}"
                );
            }
        }
        // From the burst on, they come no later than that either, but for the drift of clocks.
        let (first, last) = (&slots[100], &slots[499]);
        let even = 399 * interval;
        let span = last.at - first.at;
        assert!(
            (even..=even + even / 1_000 + 100).contains(&span),
            "{span} for {even}"
        );
    }
}

const BURST: u32 = 5;

fn gcra(limit: u32, window: Duration) -> LimiterBuilder {
    // The full rate needs a burst that is worth the guard.
    quota(limit, window, Algorithm::Gcra { burst: BURST }).guard(MS(1))
}

/// Elsewhere a queue, and a process that empties it.
#[tokio::test]
async fn a_leaky_bucket_refuses_when_it_is_full_and_leaks_by_itself() {
    let server = RedisServer::start();
    let capacity = 5;
    let builder = quota(4, LONG, Algorithm::LeakyBucket { capacity }).guard(PATIENCE);
    let here = limiter(&server, builder.clone()).await;
    let there = limiter(&server, builder).await;
    depart(&here, "a").await;
    let mut waiting: Vec<_> = (0..capacity).map(|_| Box::pin(here.acquire("a"))).collect();
    for waiter in &mut waiting {
        assert!(futures_util::poll!(waiter).is_pending());
    }
    for limiter in [&here, &there] {
        let error = limiter.acquire("a").await.expect_err("it is full");
        assert!(
            error.is_limited() && error.wait() > Some(LONG / 4 * capacity),
            "{error}"
        );
    }
    drop(waiting);

    let algorithm = Algorithm::LeakyBucket { capacity: 2 };
    let (key, policy) = (Key::from("b"), policy(quota(10, SECOND, algorithm)));
    let one = store(&server).await;
    let answer = reserve(&one, &key, &policy, &[ask(7, u64::MAX)]).await;
    assert_eq!(granted(&answer).len(), 3);
    let empty = *waits(&answer).last().expect("four are refused");
    drop(one);
    let before = CommandStats::of(&server);
    sleep(Duration::from_micros(empty)).await;
    assert_eq!(CommandStats::of(&server).since(&before).script_calls(), 0);
    let answer = reserve(&store(&server).await, &key, &policy, &[ask(7, u64::MAX)]).await;
    let slots = granted(&answer);
    assert_eq!((slots.len(), slots[0].at), (3, answer.now()));
}
