//! A permit that is given back serves the requests that wait, and shows in the next look.

use std::time::Duration;

use futures_util::future::join_all;
use support::redis_server::RedisServer;
use tokio::time::{Instant, sleep};
use tower_throttle::store::{MemoryStore, Store};
use tower_throttle::{Limiter, Quota};

const WINDOW: Duration = Duration::from_secs(5);
const UNITS: u32 = 3;

fn limiter(store: impl Store) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(UNITS, WINDOW));
    builder.store(store).build().expect("a valid policy")
}

/// Requests of these costs depart. After a while, so many of the permits are forfeited, and a request of this cost
/// departs at once that has waited since then.
const CASES: [(&[u32], usize, u32); 5] = [
    (&[1, 1, 1], 1, 1),
    (&[1, 1, 1], 2, 2),
    (&[2, 1], 1, 1),
    (&[2, 1], 1, 2),
    (&[3], 1, 3),
];

async fn wakes_the_queue(store: impl Store + Clone, longest: Duration) {
    let limiter = limiter(store);
    let limiter = &limiter;
    let cases = CASES
        .into_iter()
        .flat_map(|case| [100, 800].map(|millis| (case, millis)));
    let all = cases.map(async |((costs, forfeited, cost), millis)| {
        let key = format!("{costs:?} {forfeited} {cost} {millis}");
        let mut permits = Vec::new();
        for &cost in costs {
            let permit = limiter.acquire(&*key).cost(cost).await;
            permits.push(permit.expect("a permit"));
        }
        let waiting = tokio::spawn(limiter.acquire(&*key).cost(cost));
        sleep(Duration::from_millis(millis)).await;
        assert!(!waiting.is_finished(), "{key}");
        let start = Instant::now();
        for permit in permits.drain(..forfeited) {
            permit.forfeit();
        }
        let permit = waiting.await.expect("no panic").expect("a permit");
        assert_eq!(permit.cost(), cost);
        let waited = start.elapsed();
        assert!(waited <= longest, "{key}: {waited:?}");
    });
    join_all(all).await;
}

#[tokio::test(start_paused = true)]
async fn a_forfeited_permit_wakes_the_queue() {
    wakes_the_queue(MemoryStore::new(), Duration::from_millis(2)).await;
}

#[tokio::test]
async fn a_forfeited_permit_wakes_the_queue_on_redis() {
    let server = RedisServer::start();
    let store = server.store().await;
    // A few milliseconds, and the rest for a busy machine.
    wakes_the_queue(store, WINDOW / 2).await;
}

async fn shows_in_the_next_look(store: impl Store + Clone) {
    let limiter = limiter(store);
    for (costs, forfeited, _) in CASES {
        let key = format!("{costs:?} {forfeited}");
        let mut permits = Vec::new();
        for &cost in costs {
            let permit = limiter.acquire(&*key).cost(cost).await;
            permits.push(permit.expect("a permit"));
        }
        let full = limiter.peek(&*key).await.expect("a look");
        assert_eq!(full.remaining(), 0, "{key}");
        for permit in permits.drain(..forfeited) {
            permit.forfeit();
        }
        let returned: u32 = costs[..forfeited].iter().sum();
        let snapshot = limiter.peek(&*key).await.expect("a look");
        assert_eq!(snapshot.remaining(), returned, "{key}");
        limiter.reset(&*key).await.expect("a fresh start");
    }
}

#[tokio::test(start_paused = true)]
async fn a_forfeited_permit_shows_in_the_next_look() {
    shows_in_the_next_look(MemoryStore::new()).await;
}

#[tokio::test]
async fn a_forfeited_permit_shows_in_the_next_look_on_redis() {
    let server = RedisServer::start();
    let store = server.store().await;
    shows_in_the_next_look(store).await;
}
