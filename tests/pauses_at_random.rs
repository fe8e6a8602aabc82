//! Processes with restless callers, while somebody pauses and resumes at random: the limit holds, and so
//! does every pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use support::child;
use support::redis_server::RedisServer;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Limiter, Quota};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

const LIMIT: u32 = 12;
const WINDOW: Duration = Duration::from_millis(300);
const PAUSES: usize = 4;

/// Since 1970, by the clock that all processes of this machine share.
fn now() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("later than 1970")
}

async fn limiter(redis: &str, algorithm: Algorithm) -> Limiter {
    let store = RedisStore::connect(redis).await.expect("a connection");
    let quota = Quota::new(LIMIT, WINDOW).algorithm(algorithm);
    let limiter = Limiter::builder().store(store.timeout(SECOND * 20));
    limiter.quota(quota).build().expect("a valid policy")
}

fn algorithm(name: &str) -> Algorithm {
    match name {
        "log" => Algorithm::SlidingLog,
        "spacing" => Algorithm::Spacing,
        _ => panic!("no algorithm of this test: {name}"),
    }
}

/// Asks again and again, with more or less patience; returns when its requests departed.
async fn caller(limiter: Limiter, seed: u64, goes_on: Arc<AtomicBool>) -> Vec<Duration> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut departures = Vec::new();
    while goes_on.load(Ordering::Relaxed) {
        let patience = MS * random.random_range(50..20_000);
        let Ok(permit) = timeout(patience, limiter.acquire("a")).await else {
            continue;
        };
        let permit = permit.expect("a permit");
        let at = now();
        // Only then it has departed in time, however busy the machine is.
        if permit.is_valid() {
            departures.push(at);
        } else {
            permit.forfeit();
        }
    }
    departures
}

#[test]
#[ignore = "started by another test as a process of its own"]
fn restless_process() {
    let Some(role) = child::role() else { return };
    let words: Vec<_> = role.split(' ').collect();
    let seed: u64 = words[1].parse().expect("a number");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let limiter = limiter(words[0], algorithm(words[2])).await;
        let goes_on = Arc::new(AtomicBool::new(true));
        let callers = (0..40).map(|caller_number| {
            let (limiter, goes_on) = (limiter.clone(), goes_on.clone());
            tokio::spawn(caller(limiter, seed * 1_000 + caller_number, goes_on))
        });
        let callers: Vec<_> = callers.collect();
        assert_eq!(
            tokio::task::spawn_blocking(child::hear)
                .await
                .expect("a line"),
            "stop"
        );
        goes_on.store(false, Ordering::Relaxed);
        for departures in join_all(callers).await {
            for at in departures.expect("no panic") {
                child::say(at.as_micros());
            }
        }
    });
}

/// When a pause was known to the store, and when it ended.
struct Paused {
    from: Duration,
    to: Duration,
}

async fn holds(name: &str) {
    let server = RedisServer::start();
    let mut processes: Vec<_> = (1..=3)
        .map(|seed| {
            let role = format!("{} {seed} {name}", server.url());
            child::spawn("pauses_at_random::restless_process", &role, &[])
        })
        .collect();
    let limiter = limiter(&server.url(), algorithm(name)).await;
    let mut random = StdRng::seed_from_u64(rand::random());
    let mut pauses = Vec::new();
    for number in 0..PAUSES {
        sleep(MS * random.random_range(200..900)).await;
        let span = MS * random.random_range(1_500..2_200);
        let until = Instant::now() + span;
        limiter.pause("a", until).await.expect("a pause");
        let from = now();
        let to = if number % 2 == 1 {
            sleep(MS * random.random_range(1_200..1_500)).await;
            let to = now();
            limiter.resume("a").await.expect("no pause");
            to
        } else {
            let left = until - Instant::now();
            let to = now() + left;
            sleep(left).await;
            to
        };
        pauses.push(Paused { from, to });
    }
    sleep(SECOND).await;
    processes
        .iter_mut()
        .for_each(|process| process.tell("stop"));
    let mut departures = Vec::new();
    for process in processes {
        let said = process.finish(SECOND * 60);
        let micros = said.iter().map(|it| it.parse().expect("a number"));
        departures.extend(micros.map(Duration::from_micros));
    }
    departures.sort();
    for Paused { from, to } in &pauses {
        let late = departures
            .iter()
            .filter(|&at| *at > *from + SECOND && at < to);
        assert_eq!(late.count(), 0, "{name}: within a pause");
        let resumed = departures.iter().filter(|&at| at >= to);
        assert!(resumed.count() > 0, "{name}: nothing departs after a pause");
    }
    let first = departures[0];
    let history: History = departures.iter().map(|&at| at - first).collect();
    match name {
        "spacing" => history.assert_at_most(1, WINDOW / LIMIT),
        _ => history.assert_at_most(LIMIT.into(), WINDOW),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_hold_through_random_pauses() {
    holds("log").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_hold_through_random_pauses() {
    holds("spacing").await;
}
