//! A pause holds in all processes, and ends in all.

use redis::aio::ConnectionManager;

use crate::limiter::{departures, history, queue};
use crate::prelude::*;

#[tokio::test(start_paused = true)]
async fn a_request_during_a_pause_waits_or_is_refused() {
    for text in [
        "2/s",
        "2/s sliding-buckets buckets=10",
        "2/s spacing",
        "2/s gcra burst=2",
        "2/s fixed-window start=first-request",
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
    let queue = queue(&limiter, 12).await;
    sleep(SECOND * 30).await;
    assert!(queue.iter().all(|waiter| !waiter.is_finished()));
    limiter.resume("a").await.expect("no pause");
    let departures = departures(queue).await;
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

/// Whenever the pause begins, and whatever calls are under way. After it, they depart as fast as the quota allows.
#[tokio::test(start_paused = true)]
async fn another_process_stops_within_the_horizon_and_its_requests_keep_their_places() {
    for millis in (0..3_000).step_by(41) {
        let [one, other] = two(Quota::per_second(20));
        let start = Instant::now();
        let queue = queue(&one, 100).await;
        sleep(millis * MS).await;
        let until = Instant::now() + 10 * SECOND;
        other.pause("a", until).await.expect("a pause");
        let stopped = Instant::now() + HORIZON + GUARD + ROUND_TRIP;
        let departures = departures(queue).await;
        let late = departures.iter().filter(|&&at| at > stopped && at < until);
        assert_eq!(late.count(), 0, "after {millis} ms");
        assert!(departures.is_sorted());
        history(&departures, start).assert_at_most(20, SECOND);
        let next = departures
            .iter()
            .find(|&&at| at >= until)
            .expect("some wait");
        assert!(*next < until + MS * 20, "after {millis} ms");
        assert!(departures[99] < until + SECOND * 6, "after {millis} ms");
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
        let queue = queue(&waiting, 2).await;
        sleep(waited * SECOND).await;
        let resumed = Instant::now();
        resuming.resume("a").await.expect("no pause");
        let noticed = departures(queue).await[0] - resumed;
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
const STOPS_WITHIN: Duration = SECOND;

/// Requests wait in one process while another begins a pause of so many seconds, and ends it.
async fn stops_and_goes_on(commands: Way, waits: Way, pause: u32) {
    let server = RedisServer::start();
    let quota = Quota::new(10, SECOND / 2);
    let commanding = limiter(&server, commands, quota).await;
    let waiting = limiter(&server, waits, quota).await;
    let queue = queue(&waiting, 100).await;
    sleep(SECOND * 6 / 5).await;
    let until = Instant::now() + SECOND * pause;
    commanding.pause("a", until).await.expect("a pause");
    let stopped = Instant::now() + STOPS_WITHIN;
    sleep(STOPS_WITHIN + SECOND / 2).await;
    attempt(&waiting, "a", 1).await.expect_err("it is paused");
    // Its message may arrive before the answer.
    let resumed = Instant::now();
    commanding.resume("a").await.expect("no pause");
    let mut departures = bounded(departures(queue)).await;
    departures.sort_unstable();
    let (before, after) = departures.split_at(departures.partition_point(|&at| at < resumed));
    let case = format!("{commands:?}, {waits:?}: {before:?}, {after:?}");
    assert!(
        before.len() >= 10 && before.last() <= Some(&stopped),
        "{case}"
    );
    // A quarter of the expected wait where no message arrives, and the rest for a busy machine.
    assert!(after[0] < resumed + SECOND * 5, "{case}");
    eventually("a request departs at once", async || {
        attempt(&waiting, "a", 1).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_stops_other_processes_and_they_go_on_at_its_end_with_and_without_messages() {
    use Way::{Manager, Restricted, Scripts, Transactions};
    // Without the message, the end of a pause of 600 s would be noticed after 150 s.
    let ways = [
        (Scripts, Scripts, 600),
        (Transactions, Scripts, 600),
        (Scripts, Transactions, 600),
        (Scripts, Manager, 12),
        (Restricted, Scripts, 12),
        (Scripts, Restricted, 12),
    ];
    join_all(ways.map(|(commands, waits, pause)| stops_and_goes_on(commands, waits, pause))).await;
}
