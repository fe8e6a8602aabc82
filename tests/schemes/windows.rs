//! Logs, buckets and windows.

use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::time::sleep;
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, WindowStart};

use crate::schemes::{LONG, MS, PATIENCE, SECOND, depart, limiter, quota, since_epoch};
use support::child;
use support::keyspace::{assert_all_expire, names, wait_until_empty};
use support::redis_server::RedisServer;

const FIRST_REQUEST: Algorithm = Algorithm::FixedWindow {
    start: WindowStart::FirstRequest,
};

/// The departures of two replicas, each of which sends so many requests.
async fn departures(
    server: &RedisServer,
    builder: tower_throttle::LimiterBuilder,
    requests: usize,
) -> Vec<Duration> {
    let (one, other) = (
        limiter(server, builder.clone()).await,
        limiter(server, builder).await,
    );
    let departs = (0..requests).flat_map(|_| [depart(&one, "a"), depart(&other, "a")]);
    let mut departed = join_all(departs).await;
    departed.sort_unstable();
    departed
}

#[tokio::test]
async fn a_window_from_the_first_request_ends_after_its_length() {
    let server = RedisServer::start();
    let (limit, window) = (5, MS(200));
    let departed = departures(&server, quota(limit, window, FIRST_REQUEST), 20).await;
    // A window begins with a departure. The next begins with the first departure after its end.
    let mut rest = &departed[..];
    while let Some(&start) = rest.first() {
        let length = rest.partition_point(|&at| at < start + window);
        assert!(
            length <= limit as usize,
            "{length} from {start:?}: {departed:?}"
        );
        rest = &rest[length..];
    }
    wait_until_empty(&server).await;
}

#[tokio::test]
async fn a_killed_process_leaves_no_key_without_an_expiry() {
    let server = RedisServer::start();
    for _ in 0..3 {
        let spender = child::spawn("schemes::windows::spends_without_end", &server.url(), &[]);
        for _ in 0..3 {
            spender.next_line(PATIENCE);
        }
        spender.kill9();
        assert_all_expire(&server);
    }
    assert!(names(&server).len() >= 300);
}

#[tokio::test]
#[ignore = "started by another test as a process of its own"]
async fn spends_without_end() {
    let Some(url) = child::role() else { return };
    let builder = quota(1, LONG, FIRST_REQUEST);
    let store = tower_throttle::store::RedisStore::connect(&url).await;
    let limiter = builder.store(store.expect("a connection")).build();
    let limiter = limiter.expect("a valid policy");
    for round in 0.. {
        let all = (0..100).map(|key| limiter.try_acquire(format!("{round}-{key}")));
        join_all(all).await;
        child::say(round);
    }
}

#[tokio::test]
async fn windows_of_the_clock_begin_at_its_multiples() {
    let server = RedisServer::start();
    let (limit, window) = (3, MS(100));
    let start = WindowStart::Clock;
    let builder = quota(limit, window, Algorithm::FixedWindow { start });
    let departed = departures(&server, builder, 16).await;
    let history: History = departed.into_iter().collect();
    assert!(history.most_in_aligned(window) <= limit.into());
    assert!(history.span() >= Some(window * 9));
    assert_eq!(names(&server).len(), 1);
    assert_all_expire(&server);
    wait_until_empty(&server).await;
}

#[tokio::test]
async fn a_log_counts_all_requests_of_a_moment_and_none_that_it_refuses() {
    let server = RedisServer::start();
    let builder = quota(100, LONG, Algorithm::SlidingLog).guard(PATIENCE);
    let limiter = limiter(&server, builder.denial_cache(0)).await;
    let mut granted = 0;
    for _ in 0..3 {
        let decisions = join_all((0..60).map(|_| limiter.try_acquire("a"))).await;
        let decisions = decisions.into_iter().map(|it| it.expect("a decision"));
        granted += decisions.filter(|it| it.is_granted()).count();
    }
    assert_eq!(granted, 100);
    let reset = limiter.peek("a").await.expect("a look").reset();
    assert!(reset <= LONG + PATIENCE + SECOND, "{reset:?}");
}

#[tokio::test]
async fn buckets_hold_any_limit_in_a_bounded_number_of_counts() {
    let server = RedisServer::start();
    let (limit, window, buckets) = (500, MS(400), 10);
    let builder = quota(limit, window, Algorithm::SlidingBuckets { buckets });
    let limiter = limiter(&server, builder).await;
    let departs = join_all((0..1_500).map(|_| depart(&limiter, "a")));
    let longest = async {
        let mut longest = 0;
        for _ in 0..20 {
            sleep(window / 10).await;
            let length: usize = server.command(&["STRLEN", "throttle:{a}"]);
            longest = length.max(longest);
        }
        longest
    };
    let (departed, longest) = join(departs, longest).await;
    let history: History = departed.into_iter().collect();
    history.assert_at_most(limit.into(), window);
    assert!(longest > 0 && longest < 600, "{longest} bytes");
}

/// Each request costs more than a thousandth of the limit.
#[tokio::test]
async fn a_limit_of_a_million_serves_large_costs_within_12_kilobytes() {
    const COST: u32 = 8_000;
    const LIMIT: u32 = 1_000_000;
    let server = RedisServer::start();
    let builder = quota(LIMIT, SECOND, Algorithm::SlidingLog);
    let limiter = limiter(&server, builder).await;
    let departs = join_all((0..1_000).map(|_| async {
        loop {
            let permit = limiter.acquire("a").cost(COST).await.expect("a permit");
            let at = since_epoch();
            if permit.is_valid() {
                return (at, u64::from(COST));
            }
            permit.forfeit();
        }
    }));
    let longest = async {
        let mut longest = 0;
        for _ in 0..50 {
            sleep(SECOND / 8).await;
            let length: usize = server.command(&["STRLEN", "throttle:{a}"]);
            longest = length.max(longest);
        }
        longest
    };
    let (departed, longest) = join(departs, longest).await;
    let history: History = departed.into_iter().collect();
    assert_eq!(history.len(), 1_000);
    history.assert_at_most(LIMIT.into(), SECOND);
    assert!(longest > 0 && longest <= 12_000, "{longest} bytes");
    println!("{longest} bytes, {:?}", history.span());
}
