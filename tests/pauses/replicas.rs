//! In several limiters that share a Redis.

use futures_util::future::join_all;
use redis::aio::ConnectionManager;
use tokio::time::{Instant, sleep};
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Permit, Quota};

use crate::pauses::{MS, SECOND, build, departures, history, line, per_second};
use support::errors::bounded;
use support::redis_server::RedisServer;

/// How a replica uses the server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Scripts,
    Transactions,
    /// Its connection cannot subscribe.
    Manager,
    /// Its user may neither publish nor subscribe.
    Restricted,
}

async fn connect(server: &RedisServer, way: Way) -> RedisStore {
    let user = ["ACL", "SETUSER", "restricted", "on", ">pw", "~*", "+@all"];
    server.command::<()>(&[&user[..], &["-publish", "-subscribe", "-psubscribe"]].concat());
    let restricted = format!("redis://restricted:pw@127.0.0.1:{}/", server.port());
    let store = match way {
        Way::Manager => {
            let manager = ConnectionManager::new(server.client()).await;
            RedisStore::from(manager.expect("a connection"))
        }
        Way::Restricted => {
            let store = RedisStore::connect(&restricted).await;
            store.expect("a connection")
        }
        Way::Scripts | Way::Transactions => server.store().await,
    };
    let store = store.timeout(SECOND * 20);
    let store = store.scripting(way != Way::Transactions);
    store.expect("a store that connected")
}

async fn limiter(server: &RedisServer, way: Way, quota: Quota) -> Limiter {
    build(
        Limiter::builder()
            .quota(quota)
            .store(connect(server, way).await),
    )
}

/// The horizon, the guard and a round trip are 120 ms; the rest is for a busy machine.
const STOPS_WITHIN: std::time::Duration = std::time::Duration::from_millis(500);

async fn stops_others(pauses: Way, waits: Way) {
    let server = RedisServer::start();
    let quota = Quota::new(10, SECOND / 2);
    let pausing = limiter(&server, pauses, quota).await;
    let waiting = limiter(&server, waits, quota).await;
    let start = Instant::now();
    let line = line(&waiting, 60).await;
    sleep(SECOND * 6 / 5).await;
    let until = Instant::now() + SECOND * 3;
    pausing.pause("a", until).await.expect("a pause");
    let stopped = Instant::now() + STOPS_WITHIN;
    let departures = departures(line).await;
    history(&departures, start).assert_at_most(10, SECOND / 2);
    let late = departures.iter().filter(|&&at| at > stopped && at < until);
    let shown = || departures.iter().map(|&at| at - start).collect::<Vec<_>>();
    assert_eq!(late.count(), 0, "{pauses:?}, {waits:?}: {:?}", shown());
    let before = departures.iter().filter(|&&at| at < until).count();
    assert!((10..60).contains(&before), "{before} departed before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_stops_other_processes_with_and_without_messages() {
    let ways = [
        (Way::Scripts, Way::Scripts),
        (Way::Scripts, Way::Manager),
        (Way::Transactions, Way::Scripts),
        (Way::Scripts, Way::Transactions),
        (Way::Restricted, Way::Scripts),
        (Way::Scripts, Way::Restricted),
    ];
    join_all(ways.map(|(pauses, waits)| stops_others(pauses, waits))).await;
}

/// How long it takes until a request departs in another process after a pause of so many seconds was ended.
async fn goes_on(resumes: Way, waits: Way, pause: u32) -> std::time::Duration {
    let server = RedisServer::start();
    let quota = Quota::per_second(10);
    let resuming = limiter(&server, resumes, quota).await;
    let waiting = limiter(&server, waits, quota).await;
    let until = Instant::now() + SECOND * pause;
    resuming.pause("a", until).await.expect("a pause");
    let line = line(&waiting, 1).await;
    sleep(SECOND / 2).await;
    assert!(!line[0].is_finished());
    resuming.resume("a").await.expect("no pause");
    let resumed = Instant::now();
    departures(line).await[0].saturating_duration_since(resumed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_pause_reaches_subscribers_at_once() {
    for (resumes, waits) in [
        (Way::Scripts, Way::Scripts),
        (Way::Transactions, Way::Transactions),
    ] {
        let took = goes_on(resumes, waits, 600).await;
        println!("{resumes:?}: {took:?}");
        // 50 ms on a quiet machine. Without the message, it would take 150 s.
        assert!(took < SECOND, "{resumes:?}, {waits:?}: {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_pause_is_noticed_without_messages() {
    let ways = [
        (Way::Scripts, Way::Manager),
        (Way::Scripts, Way::Restricted),
        (Way::Restricted, Way::Scripts),
    ];
    let took = join_all(ways.map(|(resumes, waits)| goes_on(resumes, waits, 12))).await;
    for (took, ways) in took.into_iter().zip(ways) {
        // A quarter of 12 s, and the rest for a busy machine.
        assert!(took < SECOND * 5, "{ways:?}: {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_stop_even_if_the_store_is_gone() {
    let server = RedisServer::start();
    let store = connect(&server, Way::Scripts).await.timeout(SECOND / 5);
    let limiter = build(per_second(5).store(store));
    let mut waiters = Vec::new();
    for _ in 0..15 {
        waiters.push(tokio::spawn(limiter.acquire("a").max_wait(SECOND * 6)));
    }
    sleep(SECOND / 2).await;
    drop(server);
    let until = Instant::now() + SECOND * 3;
    let error = limiter.pause("a", until).await.expect_err("no store");
    assert!(error.is_store());
    let answers = bounded(join_all(waiters)).await.into_iter();
    let answers: Vec<Result<Permit, _>> = answers.map(|it| it.expect("no panic")).collect();
    // Those of the first window.
    assert_eq!(answers.iter().flatten().count(), 5);
}

/// A remembered refusal does not outlive a pause that another process ends.
async fn is_granted_again(way: Way) {
    let server = RedisServer::start();
    let resuming = limiter(&server, Way::Scripts, Quota::per_second(5)).await;
    let refused = limiter(&server, way, Quota::per_second(5)).await;
    let until = Instant::now() + SECOND * 600;
    resuming.pause("a", until).await.expect("a pause");
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
async fn a_remembered_refusal_does_not_outlive_a_pause() {
    join_all([Way::Scripts, Way::Manager].map(is_granted_again)).await;
}
