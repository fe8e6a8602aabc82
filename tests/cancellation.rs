//! Requests that are cancelled, processes that are killed, and runtimes that wake late cost no rate and break no bound.
//!
//! Redis runs on this host, so the system's clock is the store's.

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

async fn on_redis(url: &str, builder: LimiterBuilder) -> Limiter {
    let store = RedisStore::connect(url).await.expect("a connection");
    // A busy machine answers late, which is not the subject here.
    let store = store.timeout(Duration::from_secs(20));
    builder.store(store).build().expect("a valid policy")
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a sensible clock")
}

/// Keeps so many requests waiting for a while, cancels half of them at a random time, and returns the departures of the
/// others.
async fn restless_requests(limiter: &Limiter, waiters: usize) -> Vec<Duration> {
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
    // The rate on a machine with nothing else to do is asserted on a paused clock.
    assert!(
        share >= 0.75,
        "{:.1}% of the rate, {} departures",
        share * 100.0,
        history.len()
    );
}

fn crowd_quota() -> LimiterBuilder {
    // With the default guard, a machine that is late by 12 ms costs grants, and so rate.
    Limiter::builder()
        .quota(Quota::new(LIMIT, WINDOW))
        .guard(WINDOW / 40)
}

#[tokio::test]
#[ignore = "started by another test as a process of its own"]
async fn restless_process() {
    let Some(url) = child::role() else { return };
    let limiter = on_redis(&url, crowd_quota()).await;
    for at in restless_requests(&limiter, 240).await {
        child::say(at.as_micros());
    }
}

#[test]
fn cancelled_requests_cost_no_rate_in_three_processes() {
    let server = RedisServer::start();
    let processes =
        [0; 3].map(|_| child::spawn("cancellation::restless_process", &server.url(), &[]));
    let said = processes
        .map(|process| process.finish(Duration::from_secs(60)))
        .concat();
    let at = |said: &String| Duration::from_micros(said.parse().expect("microseconds"));
    assert_bounded_and_busy(said.iter().map(at));
}

fn steady_quota() -> LimiterBuilder {
    let guard = Duration::from_millis(20);
    let window = Duration::from_millis(500);
    Limiter::builder()
        .quota(Quota::new(50, window))
        .guard(guard)
}

#[tokio::test]
#[ignore = "started by another test as a process of its own"]
async fn doomed_process() {
    let Some(url) = child::role() else { return };
    let limiter = on_redis(&url, steady_quota()).await;
    let waiting: Vec<_> = (0..1_000).map(|_| limiter.acquire("a")).collect();
    let waiting = tokio::spawn(join_all(waiting));
    sleep(Duration::from_secs(1)).await;
    child::say("waiting");
    waiting.await.expect("killed before");
}

#[tokio::test]
async fn a_killed_process_costs_the_others_no_rate() {
    let server = RedisServer::start();
    let doomed = child::spawn("cancellation::doomed_process", &server.url(), &[]);
    let departed = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let limiter = on_redis(&server.url(), steady_quota()).await;
        for _ in 0..1_000 {
            let (acquire, departed) = (limiter.acquire("a"), departed.clone());
            waiting.spawn(async move {
                acquire.await.expect("a permit");
                departed.lock().expect("no panic").push(since_epoch());
            });
        }
    }
    assert_eq!(doomed.next_line(Duration::from_secs(30)), "waiting");
    doomed.kill9();
    let (from, span) = (Duration::from_secs(1), Duration::from_secs(5));
    sleep(from).await;
    let before = departed.lock().expect("no panic").len();
    sleep(span).await;
    let rate = (departed.lock().expect("no panic").len() - before) as f64 / span.as_secs_f64();
    let share = rate / (50.0 / 0.52);
    println!("{:.1}% of the rate", share * 100.0);
    // More than 97% on a quiet machine, but for the ends of the span.
    assert!(share >= 0.8, "{:.1}% of the rate", share * 100.0);
}
