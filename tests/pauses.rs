//! A pause holds in all processes, and ends in all.

use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::ConnectionManager;
use support::errors::bounded;
use support::redis_server::RedisServer;
use support::spend::{attempt, build, per_second, under};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower_throttle::store::{MemoryStore, RedisStore};
use tower_throttle::test_util::history::History;
use tower_throttle::test_util::{FailingStore, Fault};
use tower_throttle::{Limiter, Quota};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Requests in their order of arrival. Each task returns the time of its departure.
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
    let departures = join_all(line).await.into_iter();
    departures.map(|it| it.expect("no panic")).collect()
}

fn history(departures: &[Instant], origin: Instant) -> History {
    departures.iter().map(|&at| at - origin).collect()
}

#[tokio::test(start_paused = true)]
async fn requests_wait_until_the_pause_is_over_and_keep_their_places() {
    let limiter = build(per_second(5));
    let start = Instant::now();
    let line = line(&limiter, 25).await;
    sleep(SECOND * 3 / 2).await;
    let until = Instant::now() + SECOND * 10;
    limiter.pause("a", until).await.expect("a pause");
    let departures = departures(line).await;
    assert!(departures.is_sorted());
    let before = departures.iter().filter(|&&at| at < until).count();
    assert_eq!(before, 10, "two windows departed before");
    assert!(departures[9] - start < SECOND * 3 / 2);
    history(&departures, start).assert_at_most(5, SECOND);
    // From then on, as fast as the quota allows.
    assert!(departures[10] < until + MS * 20, "{departures:?}");
    assert!(departures[24] < until + SECOND * 3, "{departures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_during_a_pause_waits_or_is_refused() {
    for text in [
        "2/s",
        "2/s sliding-buckets buckets=10",
        "2/s spacing",
        "2/s gcra burst=2",
        "2/s fixed-window",
    ] {
        let limiter = build(under(&[text]));
        let until = Instant::now() + SECOND * 5;
        limiter.pause("a", until).await.expect("a pause");
        attempt(&limiter, "a", 1).await.expect_err("it is paused");
        let snapshot = limiter.peek("a").await.expect("an answer");
        assert_eq!((snapshot.remaining(), snapshot.delay()), (0, SECOND * 5));
        let bounded = limiter.acquire("a").max_wait(SECOND * 4).await;
        let error = bounded.expect_err("too long");
        assert_eq!(error.wait(), Some(SECOND * 5), "{text}");
        limiter.acquire("a").await.expect("a permit");
        assert!(Instant::now() >= until, "{text}");
        attempt(&limiter, "b", 1).await.expect("it is not paused");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shorter_pause_does_not_shorten_a_longer_one_and_resuming_ends_it() {
    let limiter = build(per_second(5));
    let now = Instant::now();
    for until in [now + 60 * SECOND, now + SECOND, now] {
        limiter.pause("a", until).await.expect("a pause");
    }
    let line = line(&limiter, 12).await;
    sleep(SECOND * 30).await;
    assert!(line.iter().all(|waiter| !waiter.is_finished()));
    limiter.resume("a").await.expect("no pause");
    let departures = departures(line).await;
    assert!(departures.is_sorted());
    assert!(departures[0] - now < SECOND * 31, "{departures:?}");
    history(&departures, now).assert_at_most(5, SECOND);
}

/// A grant lies at most so far ahead.
const HORIZON: Duration = Duration::from_millis(100);
const ROUND_TRIP: Duration = Duration::from_millis(4);
const GUARD: Duration = Duration::from_millis(12);

/// Limiters on one store.
fn two(quota: Quota) -> [Limiter; 2] {
    let store = FailingStore::new(MemoryStore::new()).latency(ROUND_TRIP);
    [(); 2].map(|()| {
        let builder = Limiter::builder().quota(quota).guard(GUARD);
        build(builder.store(store.clone()))
    })
}

/// Whenever the pause begins, and whatever calls are under way.
#[tokio::test(start_paused = true)]
async fn another_process_stops_within_the_horizon() {
    for millis in (0..3_000).step_by(41) {
        let [one, other] = two(Quota::per_second(20));
        let line = line(&one, 70).await;
        sleep(millis * MS).await;
        let until = Instant::now() + 10 * SECOND;
        other.pause("a", until).await.expect("a pause");
        let stopped = Instant::now() + HORIZON + GUARD + ROUND_TRIP;
        let departures = departures(line).await;
        let late = departures.iter().filter(|&&at| at > stopped && at < until);
        assert_eq!(late.count(), 0, "after {millis} ms");
    }
}

/// Also by a process that has paused the key itself.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_is_noticed_within_a_quarter_of_the_expected_wait() {
    let cases = [(600, 1, 150), (20, 1, 5), (20, 17, 1), (3, 1, 1)];
    for ((pause, waited, longest), by_itself) in
        cases.into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let [waiting, resuming] = two(Quota::per_second(1));
        let until = Instant::now() + pause * SECOND;
        let pausing = if by_itself { &waiting } else { &resuming };
        pausing.pause("a", until).await.expect("a pause");
        let line = line(&waiting, 2).await;
        sleep(waited * SECOND).await;
        let resumed = Instant::now();
        resuming.resume("a").await.expect("no pause");
        let noticed = departures(line).await[0] - resumed;
        let longest = longest * SECOND + ROUND_TRIP + GUARD;
        assert!(noticed <= longest, "{pause} s: {noticed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_whose_answer_is_lost_is_sent_again() {
    let store = FailingStore::new(MemoryStore::new()).latency(ROUND_TRIP);
    let [one, other] = [(); 2].map(|()| build(per_second(5).store(store.clone())));
    let until = Instant::now() + 9 * SECOND;
    store.fail_next(1, Fault::LostRequest);
    one.pause("a", until).await.expect("a pause");
    other.acquire("a").await.expect("a permit");
    assert!(Instant::now() >= until);
}

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
