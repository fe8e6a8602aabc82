//! Waiters that leave, whole processes that die, and runtimes that wake late: nothing is lost and
//! nobody departs too early.
//!
//! Redis runs on this host, so the time at which a request departs, by the system's clock, is on the
//! store's clock.

mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use rand::Rng;
use support::child;
use support::redis_server::RedisServer;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, LimiterBuilder, Quota};

const LIMIT: u32 = 200;
const WINDOW: Duration = Duration::from_secs(4);
const SPAN: Duration = Duration::from_secs(17);

/// What may come between the permit and the reading of the clock when the machine is busy.
const BUFFER: Duration = Duration::from_millis(20);

async fn on_redis(url: &str, builder: LimiterBuilder) -> Limiter {
    let store = RedisStore::connect(url).await.expect("a connection");
    // A busy machine answers late; what happens then is another test's matter.
    let store = store.timeout(Duration::from_secs(20));
    builder.store(store).build().expect("a valid policy")
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a sensible clock")
}

/// Keeps so many waiters in line for a while, half of whom leave at a random moment; tells when the
/// others departed.
async fn restless_crowd(limiter: &Limiter, waiters: usize) -> Vec<Duration> {
    let end = Instant::now() + SPAN;
    let waiter = || async {
        let mut departed = Vec::new();
        while Instant::now() < end {
            let patience = if rand::rng().random() {
                Duration::from_micros(rand::rng().random_range(0..2_000_000))
            } else {
                SPAN * 10
            };
            let permit = timeout(patience.min(end - Instant::now()), limiter.acquire("a")).await;
            if let Ok(permit) = permit {
                permit.expect("a permit");
                departed.push(since_epoch());
            }
        }
        departed
    };
    join_all((0..waiters).map(|_| waiter())).await.concat()
}

fn assert_bounded_and_busy(departed: impl IntoIterator<Item = Duration>) {
    let history: History = departed.into_iter().collect();
    history.assert_at_most(LIMIT.into(), WINDOW);
    let span = history.span().expect("departures").as_secs_f64();
    let rate = (history.len() as f64 - f64::from(LIMIT)) / span;
    let allowed = f64::from(LIMIT) / WINDOW.as_secs_f64();
    let share = rate / allowed;
    assert!(
        share >= 0.9,
        "{:.1}% of the rate, {} departures",
        share * 100.0,
        history.len()
    );
}

fn crowd_quota() -> LimiterBuilder {
    // With the default guard, a machine that holds everyone up for 12 ms costs a window's worth of
    // slots. What that does to the rate is not the matter here.
    Limiter::builder()
        .quota(Quota::new(LIMIT, WINDOW))
        .guard(WINDOW / 40)
}

#[tokio::test]
async fn waiters_that_leave_cost_no_rate_in_one_process() {
    let server = RedisServer::start();
    let limiter = on_redis(&server.url(), crowd_quota()).await;
    let departed = restless_crowd(&limiter, 600).await;
    assert_bounded_and_busy(departed);
}

#[tokio::test]
#[ignore = "started by another test as a process of its own"]
async fn restless_process() {
    let Some(url) = child::role() else { return };
    let limiter = on_redis(&url, crowd_quota()).await;
    for at in restless_crowd(&limiter, 240).await {
        child::say(at.as_micros());
    }
}

#[test]
fn waiters_that_leave_cost_no_rate_in_three_processes() {
    let server = RedisServer::start();
    let processes = [0; 3].map(|_| child::spawn("restless_process", &server.url(), &[]));
    let said = processes
        .map(|process| process.finish(Duration::from_secs(60)))
        .concat();
    let at = |said: &String| Duration::from_micros(said.parse().expect("microseconds"));
    assert_bounded_and_busy(said.iter().map(at));
}

const HELD: u32 = 40;

fn small_quota() -> LimiterBuilder {
    Limiter::builder()
        .quota(Quota::new(10, Duration::from_millis(400)))
        .buffer(BUFFER)
}

#[tokio::test]
#[ignore = "started by another test as a process of its own"]
async fn doomed_process() {
    let Some(url) = child::role() else { return };
    let limiter = on_redis(&url, small_quota()).await;
    let waiters: Vec<_> = (0..HELD).map(|_| limiter.acquire("a")).collect();
    let waiters = tokio::spawn(join_all(waiters));
    sleep(Duration::from_millis(300)).await;
    child::say("waiting");
    waiters.await.expect("killed before");
}

#[tokio::test]
async fn a_killed_process_delays_the_others_by_no_more_than_its_slots() {
    let server = RedisServer::start();
    let limiter = on_redis(&server.url(), small_quota()).await;
    let doomed = child::spawn("doomed_process", &server.url(), &[]);
    assert_eq!(doomed.next_line(Duration::from_secs(30)), "waiting");
    doomed.kill9();
    let permits = join_all((0..20).map(|_| limiter.acquire("a"))).await;
    let last = permits
        .into_iter()
        .map(|permit| permit.expect("a permit").waited())
        .max();
    // 60 slots are six windows' worth, one of which departed before; each takes the window, the
    // buffer and a guard, which a busy machine doubles some times.
    let windows = (HELD + 20) / 10 - 1;
    let most = (Duration::from_millis(400 + 200) + BUFFER) * windows;
    assert!(last < Some(most), "{last:?}");
}

/// Blocks the one thread of the runtime at random, as heavy computations would.
async fn block_at_random(span: Duration) {
    let end = Instant::now() + span;
    while Instant::now() < end {
        let block = Duration::from_millis(rand::rng().random_range(0..=200));
        std::thread::sleep(block);
        let pause = Duration::from_millis(rand::rng().random_range(0..50));
        sleep(pause).await;
    }
}

async fn depart_late(limiter: Limiter, limit: u32, window: Duration) {
    let departed = Arc::new(Mutex::new(Vec::new()));
    let waiter = || {
        let (limiter, departed) = (limiter.clone(), departed.clone());
        async move {
            loop {
                limiter.acquire("a").await.expect("a permit");
                departed.lock().expect("no panic").push(since_epoch());
            }
        }
    };
    let waiters: Vec<_> = (0..limit * 3).map(|_| tokio::spawn(waiter())).collect();
    block_at_random(Duration::from_secs(6)).await;
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    let history: History = departed.lock().expect("no panic").iter().copied().collect();
    history.assert_at_most(limit.into(), window);
    assert!(
        history.len() > limit as usize * 2,
        "only {} departed",
        history.len()
    );
}

#[tokio::test]
async fn late_wake_ups_never_bring_departures_closer_together_in_memory() {
    let quota = Quota::new(5, Duration::from_millis(300));
    let limiter = Limiter::builder()
        .quota(quota)
        .buffer(BUFFER)
        .build()
        .expect("a policy");
    depart_late(limiter, quota.limit(), quota.window()).await;
}

#[tokio::test]
async fn late_wake_ups_never_bring_departures_closer_together_on_redis() {
    let server = RedisServer::start();
    let quota = Quota::new(5, Duration::from_millis(300));
    let limiter = on_redis(
        &server.url(),
        Limiter::builder().quota(quota).buffer(BUFFER),
    )
    .await;
    depart_late(limiter, quota.limit(), quota.window()).await;
}
