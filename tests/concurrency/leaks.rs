//! Holders that are cancelled or panic at random moments leave no place behind.

use std::future::pending;
use std::panic::resume_unwind;
use std::thread;

use rand::Rng as _;
use tokio::runtime::{Builder, Runtime};

use super::{PATIENCE, wait_for_held};
use crate::prelude::*;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_and_panicking_holders_leave_no_place() {
    let server = RedisServer::start();
    // The lease ends long after the test.
    let builder = under(&["50 concurrent lease=10min"]).store(server.store().await);
    let limiter = build(builder);
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
    eventually("no queue is left", async || limiter.queues() == 0).await;
    println!(
        "no place is left {:.1?} after the last holder",
        begun.elapsed()
    );
    // The tasks that call the store run there.
    runtimes.into_iter().for_each(Runtime::shutdown_background);
}
