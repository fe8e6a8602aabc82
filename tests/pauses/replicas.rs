//! In several, that share a Redis.

use futures_util::future::join_all;
use redis::aio::ConnectionManager;
use tokio::time::{Instant, sleep};
use tower_throttle::store::{RedisStore, Store};
use tower_throttle::{Algorithm, Limiter, Permit, Quota, WindowStart};

use crate::support::errors::bounded;
use crate::support::redis_server::RedisServer;
use crate::{MS, SECOND, build, departures, history, line, per_second};

/// What a replica may be connected by.
enum Way {
    Scripts,
    Transactions,
    /// It cannot listen, and looks.
    Manager,
}

async fn connect(server: &RedisServer, way: &Way) -> RedisStore {
    let store = match way {
        Way::Manager => RedisStore::from(
            ConnectionManager::new(server.client())
                .await
                .expect("a connection"),
        ),
        Way::Scripts | Way::Transactions => RedisStore::connect(&server.url())
            .await
            .expect("a connection"),
    };
    let store = store.timeout(SECOND * 20);
    match way {
        Way::Transactions => store.scripting(false).expect("a way to connect"),
        Way::Scripts | Way::Manager => store,
    }
}

async fn stops_others(pauses: Way, waits: Way) {
    let server = RedisServer::start();
    let pausing = build(per_second(5).store(connect(&server, &pauses).await));
    let store = connect(&server, &waits).await;
    assert_eq!(store.is_listening(), !matches!(waits, Way::Manager));
    let waiting = build(per_second(5).store(store));
    let start = Instant::now();
    let line = line(&waiting, 20).await;
    sleep(SECOND * 13 / 10).await;
    let paused = Instant::now();
    let until = paused + SECOND * 3;
    pausing.pause("a", until).await.expect("a pause");
    let departures = departures(line).await;
    history(&departures, start).assert_at_most(5, SECOND);
    let stopped = departures
        .iter()
        .filter(|&&at| at > paused + SECOND && at < until);
    assert_eq!(
        stopped.count(),
        0,
        "{:?}",
        departures.iter().map(|&at| at - start).collect::<Vec<_>>()
    );
    let before = departures.iter().filter(|&&at| at < until).count();
    assert!((5..=15).contains(&before), "{before} have gone before");
    // A slow machine lets slots expire.
    assert!(departures[19] < until + SECOND * 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_processes_stop_within_a_second() {
    stops_others(Way::Scripts, Way::Scripts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_cannot_listen_look() {
    stops_others(Way::Scripts, Way::Manager).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_without_scripts_tell_others() {
    stops_others(Way::Transactions, Way::Scripts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_without_scripts_listen() {
    stops_others(Way::Scripts, Way::Transactions).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_made_good() {
    let server = RedisServer::start();
    let pausing = build(per_second(5).store(connect(&server, &Way::Scripts).await));
    let store = connect(&server, &Way::Scripts).await;
    let waiting = build(per_second(5).store(store.clone()));
    let line = line(&waiting, 50).await;
    sleep(SECOND / 10).await;
    let mut connection = server.client().get_connection().expect("a connection");
    let killed: usize = redis::cmd("CLIENT")
        .arg(&["KILL", "TYPE", "pubsub"])
        .query(&mut connection)
        .expect("an answer");
    assert_eq!(killed, 2);
    let paused = Instant::now();
    pausing
        .pause("a", paused + SECOND * 4)
        .await
        .expect("a pause");
    let departures = departures(line).await;
    let stopped = departures
        .iter()
        .filter(|&&at| at > paused + SECOND && at < paused + SECOND * 4);
    assert_eq!(
        stopped.count(),
        0,
        "{:?}",
        departures.iter().map(|&at| at - paused).collect::<Vec<_>>()
    );
    assert!(store.is_listening(), "once more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_stops_even_if_the_store_is_gone() {
    let server = RedisServer::start();
    let store = connect(&server, &Way::Scripts).await.timeout(SECOND / 5);
    let limiter = build(per_second(5).store(store));
    let start = Instant::now();
    let mut waiters = Vec::new();
    for _ in 0..15 {
        waiters.push(tokio::spawn(limiter.acquire("a").max_wait(SECOND * 6)));
    }
    sleep(SECOND / 2).await;
    drop(server);
    let error = limiter
        .pause("a", Instant::now() + SECOND * 3)
        .await
        .expect_err("no store");
    assert!(error.is_store());
    sleep(SECOND * 2).await;
    let answers: Vec<Result<Permit, _>> = bounded(join_all(waiters))
        .await
        .into_iter()
        .map(|it| it.expect("no panic"))
        .collect();
    let granted = answers.iter().flatten().count();
    // Those of the first window; the others gave their slots away, and nobody can give them new ones.
    assert_eq!(granted, 5, "after {:?}", start.elapsed());
}

/// A refusal that is remembered does not outlive a pause that another ends.
async fn resumes_others(way: Way) {
    let server = RedisServer::start();
    let resuming = build(per_second(5).store(connect(&server, &Way::Scripts).await));
    let refused = build(per_second(5).store(connect(&server, &way).await));
    let start = Instant::now();
    resuming
        .pause("a", start + SECOND * 600)
        .await
        .expect("a pause");
    let decision = async || refused.try_acquire("a").await.expect("an answer");
    assert!(!decision().await.is_granted());
    resuming.resume("a").await.expect("no pause");
    let granted = async {
        while !decision().await.is_granted() {
            sleep(MS * 10).await;
        }
    };
    bounded(granted).await;
}

#[tokio::test]
async fn who_is_told_that_a_pause_is_over_forgets_what_was_refused() {
    resumes_others(Way::Scripts).await;
}

#[tokio::test]
async fn who_is_not_told_that_a_pause_is_over_does_not_remember_for_long() {
    resumes_others(Way::Manager).await;
}

/// Slots behind the old end of a pause are given back before anybody asks anew.
async fn resumes_all(algorithm: Algorithm) {
    let server = RedisServer::start();
    let quota = Quota::per_second(10).algorithm(algorithm);
    let limiter = async || {
        let store = connect(&server, &Way::Scripts).await;
        build(Limiter::builder().quota(quota).store(store))
    };
    let limiters = [limiter().await, limiter().await];
    let start = Instant::now();
    limiters[0]
        .pause("a", start + SECOND * 30)
        .await
        .expect("a pause");
    let callers = limiters.iter().flat_map(|limiter| {
        let caller = |_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                for _ in 0..2 {
                    limiter.acquire("a").await.expect("a permit");
                }
            })
        };
        (0..3).map(caller)
    });
    let callers: Vec<_> = callers.collect();
    sleep(SECOND).await;
    limiters[1].resume("a").await.expect("no pause");
    for caller in bounded(join_all(callers)).await {
        caller.expect("no panic");
    }
    assert!(
        start.elapsed() < SECOND * 20,
        "{algorithm:?}: {:?}",
        start.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_in_several_processes_goes_on_when_a_pause_is_over_before_its_time() {
    let all = [
        Algorithm::SlidingLog,
        Algorithm::SlidingBuckets { buckets: 10 },
        Algorithm::Spacing,
        Algorithm::LeakyBucket { capacity: 50 },
        Algorithm::Gcra { burst: 5 },
        Algorithm::FixedWindow {
            start: WindowStart::Clock,
        },
    ];
    join_all(all.map(resumes_all)).await;
}
