//! In several limiters that share a Redis.

use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::ConnectionManager;
use tokio::time::{Instant, sleep};
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota};

use crate::pauses::{MS, SECOND, build, departures, history, line, per_second};
use support::errors::bounded;
use support::redis_server::RedisServer;
use support::spend::attempt;

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

async fn limiter(server: &RedisServer, way: Way, quota: Quota) -> Limiter {
    let store = match way {
        Way::Manager => {
            let manager = ConnectionManager::new(server.client()).await;
            RedisStore::from(manager.expect("a connection"))
        }
        Way::Restricted => {
            let url = server.user(&["+@all", "-publish", "-subscribe", "-psubscribe"]);
            RedisStore::connect(&url).await.expect("a connection")
        }
        Way::Scripts | Way::Transactions => server.store().await,
    };
    let store = store.timeout(SECOND * 20);
    let store = store.scripting(way != Way::Transactions);
    let store = store.expect("a store that connected");
    build(Limiter::builder().quota(quota).store(store))
}

/// The horizon, the guard and a round trip are 120 ms; the rest is for a busy machine.
const STOPS_WITHIN: Duration = Duration::from_millis(500);

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
    let departures = bounded(departures(line)).await;
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

/// A request waits in another process, which is also refused one, until a pause of so many seconds is ended. It departs
/// within that time.
async fn goes_on(resumes: Way, waits: Way, pause: u32, within: Duration) {
    let server = RedisServer::start();
    let quota = Quota::per_second(10);
    let resuming = limiter(&server, resumes, quota).await;
    let waiting = limiter(&server, waits, quota).await;
    let until = Instant::now() + SECOND * pause;
    resuming.pause("a", until).await.expect("a pause");
    let line = line(&waiting, 1).await;
    attempt(&waiting, "a", 1).await.expect_err("it is paused");
    sleep(SECOND / 2).await;
    assert!(!line[0].is_finished());
    resuming.resume("a").await.expect("no pause");
    let resumed = Instant::now();
    let took = bounded(departures(line)).await[0].saturating_duration_since(resumed);
    println!("{resumes:?}, {waits:?}: {took:?}");
    assert!(took < within, "{resumes:?}, {waits:?}: {took:?}");
    while attempt(&waiting, "a", 1).await.is_err() {
        assert!(resumed.elapsed() < within + SECOND, "still refused");
        sleep(MS * 10).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_pause_reaches_subscribers_at_once_and_others_in_a_quarter_of_the_wait() {
    use Way::{Manager, Restricted, Scripts, Transactions};
    let subscribers = [(Scripts, Scripts), (Transactions, Transactions)];
    // 50 ms on a quiet machine. Without the message, it would take 150 s.
    let subscribers = subscribers.map(|(resumes, waits)| goes_on(resumes, waits, 600, SECOND));
    let others = [
        (Scripts, Manager),
        (Scripts, Restricted),
        (Restricted, Scripts),
    ];
    // A quarter of 12 s, and the rest for a busy machine.
    let others = others.map(|(resumes, waits)| goes_on(resumes, waits, 12, SECOND * 5));
    tokio::join!(join_all(subscribers), join_all(others));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_stop_even_if_the_store_is_gone() {
    let server = RedisServer::start();
    let store = server.store().await.timeout(SECOND / 5);
    let limiter = build(per_second(5).store(store));
    let waiting = (0..15).map(|_| tokio::spawn(limiter.acquire("a").max_wait(SECOND * 3)));
    let waiting: Vec<_> = waiting.collect();
    sleep(SECOND / 2).await;
    drop(server);
    let until = Instant::now() + SECOND * 2;
    let error = limiter.pause("a", until).await.expect_err("no store");
    assert!(error.is_store());
    let answers = join_all(waiting).await.into_iter();
    let granted = answers.filter(|it| it.as_ref().expect("no panic").is_ok());
    // Those of the first window.
    assert_eq!(granted.count(), 5);
}
