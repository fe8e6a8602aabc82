//! A pause holds for all, wherever they wait, and ends for all.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::ConnectionManager;
use support::errors::bounded;
use support::redis_server::RedisServer;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower_throttle::store::{MemoryStore, RedisStore, Store};
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Limiter, LimiterBuilder, Permit, Quota};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn build(builder: LimiterBuilder) -> Limiter {
    builder.build().expect("quotas that can hold")
}

fn per_second(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_second(limit))
}

/// Requests that wait, in their order of arrival; each yields when it departed.
async fn line(limiter: &Limiter, count: usize) -> Vec<JoinHandle<Instant>> {
    let mut line = Vec::new();
    for _ in 0..count {
        let acquire = limiter.acquire("a");
        line.push(tokio::spawn(async move {
            let _departs = acquire.await.expect("a permit");
            Instant::now()
        }));
        // So that they arrive in this order.
        tokio::task::yield_now().await;
    }
    line
}

async fn departures(line: Vec<JoinHandle<Instant>>) -> Vec<Instant> {
    let departures = bounded(join_all(line)).await;
    departures
        .into_iter()
        .map(|it| it.expect("no panic"))
        .collect()
}

fn history(departures: &[Instant], origin: Instant) -> History {
    departures.iter().map(|&at| at - origin).collect()
}

#[tokio::test(start_paused = true)]
async fn who_holds_a_slot_waits_until_the_pause_is_over_and_keeps_its_place() {
    let limiter = build(per_second(5));
    let start = Instant::now();
    let line = line(&limiter, 25).await;
    sleep(SECOND * 3 / 2).await;
    let until = Instant::now() + SECOND * 10;
    limiter.pause("a", until).await.expect("a pause");
    let departures = departures(line).await;
    assert!(departures.is_sorted());
    let before = departures.iter().filter(|&&at| at < until).count();
    assert_eq!(before, 10, "two windows have gone before");
    assert!(departures[9] - start < SECOND * 3 / 2);
    history(&departures, start).assert_at_most(5, SECOND);
    // As fast as the quota allows, from the first moment on.
    assert!(
        departures[10] < until + MS * 20,
        "{:?}",
        departures[10] - until
    );
    assert!(
        departures[24] < until + SECOND * 3,
        "{:?}",
        departures[24] - until
    );
}

#[tokio::test(start_paused = true)]
async fn who_comes_during_a_pause_waits_or_is_refused() {
    for algorithm in [
        Algorithm::SlidingLog,
        Algorithm::SlidingBuckets { buckets: 10 },
        Algorithm::Spacing,
        Algorithm::LeakyBucket { capacity: 2 },
        Algorithm::Gcra { burst: 2 },
        Algorithm::FixedWindow {
            start: tower_throttle::WindowStart::Clock,
        },
    ] {
        let quota = Quota::per_second(2).algorithm(algorithm);
        let limiter = build(Limiter::builder().quota(quota));
        let until = Instant::now() + SECOND * 5;
        limiter.pause("a", until).await.expect("a pause");
        let limited = limiter.try_acquire("a").await.expect("an answer");
        assert!(limited.permit().is_none(), "{algorithm:?}");
        let snapshot = limiter.peek("a").await.expect("an answer");
        assert_eq!((snapshot.remaining(), snapshot.delay()), (0, SECOND * 5));
        let error = limiter
            .acquire("a")
            .max_wait(SECOND * 4)
            .await
            .expect_err("too long");
        assert_eq!(error.wait(), Some(SECOND * 5), "{algorithm:?}");
        // A full bucket is no reason to refuse who would fit in but for the pause.
        limiter.acquire("a").await.expect("a permit");
        assert!(Instant::now() >= until, "{algorithm:?}");
        assert!(
            limiter
                .try_acquire("b")
                .await
                .expect("an answer")
                .is_granted()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_shorter_pause_does_not_shorten_a_longer_one_and_resuming_ends_it() {
    let limiter = build(per_second(5));
    let now = Instant::now();
    limiter
        .pause("a", now + SECOND * 60)
        .await
        .expect("a pause");
    limiter.pause("a", now + SECOND).await.expect("a pause");
    limiter.pause("a", now).await.expect("none");
    let line = line(&limiter, 12).await;
    sleep(SECOND * 30).await;
    assert!(line.iter().all(|waiter| !waiter.is_finished()));
    limiter.resume("a").await.expect("no pause");
    let departures = departures(line).await;
    assert!(departures.is_sorted());
    assert!(
        departures[0] - now < SECOND * 31,
        "{:?}",
        departures[0] - now
    );
    history(&departures, now).assert_at_most(5, SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_fresh_start_ends_a_pause() {
    let limiter = build(per_second(5));
    limiter
        .pause("a", Instant::now() + SECOND * 60)
        .await
        .expect("a pause");
    limiter.reset("a").await.expect("a fresh start");
    assert!(
        limiter
            .try_acquire("a")
            .await
            .expect("an answer")
            .is_granted()
    );
}

#[tokio::test(start_paused = true)]
async fn limiters_on_one_embedded_store_pause_together() {
    let store = MemoryStore::new();
    let [one, other] = [(); 2].map(|()| build(per_second(5).store(store.clone())));
    let start = Instant::now();
    let line = line(&one, 10).await;
    sleep(SECOND / 2).await;
    other.pause("a", start + SECOND * 7).await.expect("a pause");
    let departures = departures(line).await;
    assert_eq!(
        departures
            .iter()
            .filter(|&&at| at >= start + SECOND * 7)
            .count(),
        5
    );
}

#[tokio::test(start_paused = true)]
async fn other_quotas_keep_to_a_pause_that_was_set_before() {
    let limiter = build(per_second(5));
    let start = Instant::now();
    limiter
        .pause("a", start + SECOND * 5)
        .await
        .expect("a pause");
    limiter.set_quota(Quota::per_second(7)).expect("a quota");
    assert!(
        !limiter
            .try_acquire("a")
            .await
            .expect("an answer")
            .is_granted()
    );
    let departures = departures(line(&limiter, 7).await).await;
    assert!(departures.iter().all(|&at| at >= start + SECOND * 5));
    assert!(
        limiter
            .try_acquire("b")
            .await
            .expect("an answer")
            .is_granted()
    );
    limiter
        .pause("a", start + SECOND * 20)
        .await
        .expect("a pause");
    limiter.set_quota(Quota::per_second(5)).expect("a quota");
    limiter.resume("a").await.expect("no pause");
    assert!(
        limiter
            .try_acquire("a")
            .await
            .expect("an answer")
            .is_granted()
    );
}

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
        waiters.push(tokio::spawn(limiter.acquire("a").max_wait(SECOND * 60)));
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

#[tokio::test(start_paused = true)]
async fn where_time_stands_still_words_hold_from_one_moment_to_the_next() {
    let limiter = build(per_second(1));
    let start = Instant::now();
    let line = line(&limiter, 4).await;
    limiter
        .pause("a", start + SECOND * 9)
        .await
        .expect("a pause");
    limiter.resume("a").await.expect("no pause");
    limiter
        .pause("a", start + SECOND * 5)
        .await
        .expect("a pause");
    let departures = departures(line).await;
    assert!(departures[0] < start + MS, "it was about to leave");
    let behind: Vec<_> = departures[1..].iter().map(|&at| at - start).collect();
    assert!(
        behind[0] >= SECOND * 5 && behind[0] < SECOND * 6,
        "{behind:?}"
    );
    limiter
        .pause("a", Instant::now() + SECOND * 60)
        .await
        .expect("a pause");
    let again = Instant::now();
    let waiter = tokio::spawn(limiter.acquire("a"));
    tokio::task::yield_now().await;
    limiter.resume("a").await.expect("no pause");
    bounded(waiter).await.expect("no panic").expect("a permit");
    assert!(again.elapsed() < SECOND * 2, "{:?}", again.elapsed());
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
