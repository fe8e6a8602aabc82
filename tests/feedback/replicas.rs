//! Two processes, and a provider that has had enough of both.

use std::time::Duration;

use futures_util::future::join_all;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota, ThrottleMiddleware};

use crate::client::throttled;
use support::child;
use support::redis_server::RedisServer;
use support::upstream::{Answer, Upstream};

const SECOND: Duration = Duration::from_secs(1);

/// Per second, for both together.
const LIMIT: u32 = 10;

/// The requests of each.
const REQUESTS: usize = 40;

/// Which request of all is the first to be refused.
const ENOUGH: usize = 25;

#[test]
#[ignore = "started by another test as a process of its own"]
fn replica() {
    let Some(role) = child::role() else { return };
    let (redis, url) = role.split_once(' ').expect("two addresses");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = RedisStore::connect(redis).await.expect("a connection");
        let limiter = Limiter::builder()
            .store(store.timeout(SECOND * 20))
            .quota(Quota::per_second(LIMIT))
            // Arrivals are judged.
            .buffer(SECOND * 3 / 10);
        let limiter = limiter.build().expect("a valid policy");
        let client = throttled(ThrottleMiddleware::new(limiter));
        assert_eq!(child::hear(), "go");
        // All at once, so that most wait when the provider refuses one.
        let answers = join_all((0..REQUESTS).map(|_| client.get(url).send())).await;
        let answers = answers.into_iter().map(|answer| answer.expect("an answer"));
        let refused = answers.filter(|answer| answer.status() == 429).count();
        child::say(refused);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_stop_within_a_second_and_go_on_together_after_the_pause() {
    let server = RedisServer::start();
    let provider = Upstream::answering(|number| match number {
        ENOUGH => Answer::new(429).header("Retry-After", 2),
        _ => Answer::new(200),
    })
    .await;
    let role = format!("{} {}", server.url(), provider.uri());
    let mut replicas = [(); 2].map(|()| child::spawn("feedback::replicas::replica", &role, &[]));
    replicas.iter_mut().for_each(|replica| replica.tell("go"));
    let refused = replicas.map(|replica| {
        let said = replica.finish(SECOND * 60);
        said[0].parse::<usize>().expect("a number")
    });
    assert_eq!(refused.iter().sum::<usize>(), 1);

    let arrivals = provider.arrivals();
    assert_eq!(arrivals.len(), 2 * REQUESTS, "each arrives once");
    provider.history().assert_at_most(LIMIT.into(), SECOND);
    let [enough] = provider.answered(429)[..] else {
        panic!("more than one was refused");
    };
    let late = arrivals
        .iter()
        .filter(|&&at| at > enough + SECOND && at < enough + SECOND * 2);
    assert_eq!(late.count(), 0, "refused at {enough:?}: {arrivals:?}");
    // Requests that were granted depart, and no others until the end of the pause.
    let resumed = arrivals
        .iter()
        .filter(|&&at| at >= enough + SECOND * 2)
        .count();
    assert!(
        resumed >= 2 * REQUESTS - ENOUGH - LIMIT as usize,
        "{arrivals:?}"
    );
}
