//! Spacing, GCRA and leaky buckets.

use futures_util::future::join_all;
use futures_util::poll;
use tower_throttle::Algorithm;
use tower_throttle::test_util::history::History;

use crate::schemes::{LONG, MS, PATIENCE, SECOND, depart, limiter, quota};
use support::redis_server::RedisServer;

#[tokio::test]
async fn spacing_keeps_the_requests_of_all_replicas_one_interval_apart() {
    let server = RedisServer::start();
    let builder = quota(50, SECOND, Algorithm::Spacing);
    let replicas = [
        limiter(&server, builder.clone()).await,
        limiter(&server, builder).await,
    ];
    let departs = replicas
        .iter()
        .flat_map(|it| (0..30).map(move |_| depart(it, "a")));
    let departed: History = join_all(departs).await.into_iter().collect();
    assert_eq!(departed.len(), 60);
    departed.assert_at_most(1, SECOND / 50);
}

#[tokio::test]
async fn gcra_keeps_its_bound_over_every_span() {
    let server = RedisServer::start();
    for (limit, window, burst) in [(60, SECOND, 5), (7, MS(300), 3)] {
        // The guard is taken from the burst.
        let builder = quota(limit, window, Algorithm::Gcra { burst }).guard(MS(5));
        let mut replicas = Vec::new();
        for _ in 0..3 {
            replicas.push(limiter(&server, builder.clone().name(format!("{limit}"))).await);
        }
        let departs = replicas
            .iter()
            .flat_map(|it| (0..20).map(move |_| depart(it, "a")));
        let departed: History = join_all(departs).await.into_iter().collect();
        assert_eq!(departed.len(), 60);
        let interval = window.div_f64(limit.into());
        assert!(departed.burst(interval) <= burst.into(), "{departed:?}");
    }
}

#[tokio::test]
async fn a_full_leaky_bucket_refuses_in_all_replicas() {
    let server = RedisServer::start();
    let capacity = 5;
    let builder = quota(4, LONG, Algorithm::LeakyBucket { capacity }).guard(PATIENCE);
    let here = limiter(&server, builder.clone()).await;
    let there = limiter(&server, builder).await;
    depart(&here, "a").await;
    let mut waiting: Vec<_> = (0..capacity).map(|_| Box::pin(here.acquire("a"))).collect();
    for waiter in &mut waiting {
        assert!(poll!(waiter).is_pending());
    }
    for limiter in [&here, &there] {
        let error = limiter.acquire("a").await.expect_err("it is full");
        let least = LONG / 4 * capacity;
        assert!(error.is_limited() && error.wait() > Some(least), "{error}");
    }
}
