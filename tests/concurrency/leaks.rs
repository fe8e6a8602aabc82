//! Holders that are cancelled or panic at random moments leave no place behind, and spend nothing else.

use std::future::{pending, ready};
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use rand::Rng as _;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::Limiter;

use super::{PATIENCE, SECOND, held, wait_for_held};
use support::redis_server::RedisServer;
use support::spend::{build, under};

const RUNTIMES: usize = 4;
const HOLDERS: usize = 10_000;
const KEYS: [&str; 3] = ["a", "b", "c"];

/// A time of up to 3 ms.
fn moment() -> Duration {
    Duration::from_micros(rand::rng().random_range(0..3_000))
}

/// Takes a place, and ends in some way.
async fn hold(limiter: Limiter) {
    let key = KEYS[rand::rng().random_range(0..KEYS.len())];
    let way = rand::rng().random_range(0..8);
    let acquire = limiter.acquire(key);
    match way {
        0 => _ = acquire.max_wait(moment()).await,
        1 => {
            _ = acquire
                .run(|| async { resume_unwind(Box::new("in the work")) })
                .await
        }
        2 => _ = timeout(moment(), acquire.run(pending::<()>)).await,
        _ => {
            let permit = acquire.await.expect("a permit");
            match way {
                3 => permit.forfeit(),
                4 => drop(permit.into_charge()),
                5 => {
                    let _place = permit.hold();
                    sleep(moment()).await;
                    resume_unwind(Box::new("with a place"));
                }
                6 => {
                    let place = permit.hold();
                    thread::spawn(move || drop(place)).join().expect("no panic");
                }
                _ => _ = permit.hold().run(sleep(moment())).await,
            }
        }
    }
}

/// Starts so many holders on a runtime, and cancels a third of them.
async fn start(limiter: Limiter, count: usize) {
    let mut holders = Vec::new();
    for nth in 0..count {
        let holder = tokio::spawn(hold(limiter.clone()));
        if rand::rng().random_range(0..3) == 0 {
            tokio::spawn(async move {
                sleep(moment()).await;
                holder.abort();
            });
        } else {
            holders.push(holder);
        }
        if nth % 50 == 0 {
            sleep(moment()).await;
        }
    }
    for holder in holders {
        // Some of them panic.
        let _ = holder.await;
    }
}

async fn leaks_none(limiter: Limiter) {
    let runtime = || {
        let mut builder = Builder::new_multi_thread();
        let built = builder.worker_threads(1).enable_all().build();
        built.expect("a runtime")
    };
    let mut runtimes = [(); RUNTIMES].map(|()| runtime()).into_iter();
    let all = || start(limiter.clone(), HOLDERS / RUNTIMES);
    let ends = runtimes.next().expect("a runtime");
    ends.spawn(all());
    let runtimes: Vec<_> = runtimes.collect();
    let started: Vec<_> = runtimes.iter().map(|it| it.spawn(all())).collect();
    // One of them ends while requests wait and are in progress.
    sleep(SECOND / 20).await;
    ends.shutdown_background();
    for it in started {
        let it = timeout(6 * PATIENCE, it).await;
        it.expect("no request waits for ever").expect("no panic");
    }
    let begun = Instant::now();
    for key in KEYS {
        wait_for_held(&limiter, key, 0).await;
    }
    while limiter.queues() > 0 {
        assert!(begun.elapsed() < PATIENCE, "{} queues", limiter.queues());
        sleep(SECOND / 100).await;
    }
    println!(
        "no place is left {:.1?} after the last holder",
        begun.elapsed()
    );
    // The tasks that call the store run there.
    runtimes.into_iter().for_each(Runtime::shutdown_background);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_and_panicking_holders_leave_no_place_embedded() {
    leaks_none(build(under(&["50 concurrent"]))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_and_panicking_holders_leave_no_place_on_redis() {
    let server = RedisServer::start();
    // The lease ends long after the test.
    let builder = under(&["50 concurrent lease=10min"]).store(server.store().await);
    leaks_none(build(builder)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_find_no_place_spend_nothing_of_a_rate() {
    let server = RedisServer::start();
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let builder = under(&["5 concurrent", "600/m"]).store(server.store().await);
        limiters.push(build(builder));
    }
    let mut places = Vec::new();
    for nth in 0..5 {
        let permit = limiters[nth % 2].acquire("a").await.expect("a permit");
        places.push(permit.hold());
    }
    let waiting = limiters
        .iter()
        .flat_map(|limiter| vec![limiter.clone(); 25]);
    let waiting = waiting.map(|limiter| {
        tokio::spawn(async move { limiter.run("a", || sleep(SECOND / 50)).await.is_ok() })
    });
    let waiting: Vec<_> = waiting.collect();
    for limiter in limiters.iter().cycle().take(20) {
        let decision = limiter.try_acquire("a").await.expect("a decision");
        assert!(!decision.is_granted());
        let bounded = limiter.acquire("a").max_wait(moment());
        let error = bounded.await.expect_err("there is no place");
        assert!(error.is_limited(), "{error}");
    }
    sleep(SECOND).await;
    let left = async |limiter: &Limiter| {
        let snapshot = limiter.peek("a").await.expect("a snapshot");
        snapshot.remaining_of("requests")
    };
    assert_eq!(left(&limiters[0]).await, Some(595));
    assert_eq!(held(&limiters[1], "a").await, 5);
    drop(places);
    for it in waiting {
        assert!(it.await.expect("no panic"));
    }
    let begun = Instant::now();
    wait_for_held(&limiters[0], "a", 0).await;
    // Less than a minute has passed since the first.
    assert_eq!(left(&limiters[1]).await, Some(545), "{:?}", begun.elapsed());
    limiters[0].run("a", || ready(())).await.expect("a place");
}
