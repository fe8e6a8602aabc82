//! Three processes whose responses are streamed. One of them is killed.

use std::thread;
use std::time::Duration;

use reqwest_middleware::ClientBuilder;
use tokio::time::sleep;
use tower_throttle::store::RedisStore;
use tower_throttle::{ThrottleMiddleware, key};

use super::SECOND;
use super::streams::Streams;
use support::child::{self, Child, now};
use support::progress::{at_once, most_at_once};
use support::redis_server::RedisServer;
use support::spend::{build, under};

const LIMIT: usize = 20;
const QUOTA: &str = "20 concurrent lease=5s";
const LEASE: Duration = Duration::from_secs(5);

/// The places of the process that is killed.
const DOOMED: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by another test as a process of its own"]
async fn replica() {
    let Some(role) = child::role() else { return };
    let words: Vec<_> = role.split(' ').collect();
    let [redis, callers, url] = words[..] else {
        panic!("{role} is no role");
    };
    let store = RedisStore::connect(redis).await.expect("a connection");
    let limiter = build(under(&[QUOTA]).store(store));
    let plain = reqwest::Client::builder().no_proxy().build();
    let client = ClientBuilder::new(plain.expect("a client"))
        .with(ThrottleMiddleware::new(limiter).key(key::constant("a")))
        .build();
    let callers = (0..callers.parse().expect("a number")).map(|_| {
        let (client, url) = (client.clone(), url.to_owned());
        tokio::spawn(async move {
            loop {
                let response = client.get(&url).send().await.expect("a response");
                response.bytes().await.expect("a whole body");
            }
        })
    });
    futures_util::future::join_all(callers.collect::<Vec<_>>()).await;
}

fn start(redis: &RedisServer, callers: usize, upstream: &Streams, millis: u32) -> Child {
    let role = format!("{} {callers} {}/{millis}", redis.url(), upstream.base);
    child::spawn("concurrency::replicas::replica", &role, &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_the_limit_are_in_progress_when_a_process_is_killed() {
    let (redis, upstream) = (RedisServer::start(), Streams::start().await);
    let doomed = start(&redis, DOOMED, &upstream, 600_000);
    upstream.wait_for(DOOMED).await;
    let others = [(); 2].map(|()| start(&redis, 30, &upstream, 2_000));
    upstream.wait_for(LIMIT).await;
    sleep(3 * SECOND).await;
    // Before it is waited for, as a third of the lease or more is left now.
    let killed = now();
    doomed.kill9();
    sleep(LEASE + 6 * SECOND).await;
    let ended = now();
    thread::spawn(move || drop(others))
        .join()
        .expect("no panic");

    let mut works = upstream.works();
    works.iter_mut().for_each(|it| it.1 = it.1.min(ended));
    assert_eq!(most_at_once(&works), LIMIT);
    // The connections of the process have ended, and its places are not free.
    let soon = works
        .iter()
        .map(|it| it.0)
        .filter(|&at| at > killed + SECOND / 2);
    let mut soon: Vec<_> = soon.collect();
    soon.sort_unstable();
    let kept = at_once(&works, killed + SECOND);
    assert!(kept <= LIMIT - DOOMED, "{kept}");
    let all = soon.iter().find(|&&at| at_once(&works, at) == LIMIT);
    let again = *all.expect("all places are in use again") - killed;
    let (from, until) = (killed + LEASE + SECOND, ended);
    let spent = |it: &(Duration, Duration)| it.1.min(until).saturating_sub(it.0.max(from));
    let spent: Duration = works.iter().map(spent).sum();
    let used = spent.as_secs_f64() / (until - from).as_secs_f64() / LIMIT as f64;
    println!(
        "{} requests, all places in use again {again:.2?} after the kill, then {:.1}% used",
        works.len(),
        used * 100.0
    );
    assert!(again < LEASE + SECOND, "{again:?}");
    assert!(used > 0.8, "{used}");
}
