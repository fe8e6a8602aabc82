//! How long it takes until a place that one process releases is in use in another.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Priority};

use super::SECOND;
use support::child::{self, Child, now};
use support::progress::{most_at_once, percentiles};
use support::redis_server::RedisServer;
use support::spend::{build, under};

/// A machine may take longer while it runs other tests.
const SLOW: Duration = Duration::from_millis(500);

/// A process that does not get nudges looks for a place so often, if it is one of the next two, or else.
const NEXT: Duration = Duration::from_millis(120);
const OTHERS: Duration = Duration::from_secs(1);

async fn limiter(redis: &str, quota: &str) -> Limiter {
    let store = RedisStore::connect(redis).await.expect("a connection");
    build(under(&[quota]).store(store))
}

/// Does one work after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by another test as a process of its own"]
async fn worker() {
    let Some(role) = child::role() else { return };
    let words: Vec<_> = role.splitn(3, ' ').collect();
    let [redis, millis, quota] = words[..] else {
        panic!("{role} is no role");
    };
    let takes = Duration::from_millis(millis.parse().expect("a number"));
    let limiter = limiter(redis, quota).await;
    loop {
        let permit = limiter.acquire("a").await.expect("a permit");
        let from = now();
        if !permit.is_valid() {
            permit.forfeit();
            continue;
        }
        let place = permit.hold();
        sleep(takes).await;
        child::say(format!("{} {}", from.as_micros(), now().as_micros()));
        drop(place);
    }
}

fn start(redis: &str, millis: u64, quota: &str) -> Child {
    let role = format!("{redis} {millis} {quota}");
    child::spawn("concurrency::handover::worker", &role, &[])
}

/// Kills the processes. Returns the process, the begin and the end of each work that has ended, by their begins.
fn end(workers: Vec<Child>) -> Vec<(usize, Duration, Duration)> {
    let works = workers.into_iter().enumerate().flat_map(|(process, it)| {
        let parse = move |line: String| {
            let (from, until) = line.split_once(' ').expect("two numbers");
            let micros = |text: &str| Duration::from_micros(text.parse().expect("a number"));
            (process, micros(from), micros(until))
        };
        it.kill9().into_iter().map(parse)
    });
    let mut works: Vec<_> = works.collect();
    works.sort_unstable_by_key(|it| it.1);
    let spans: Vec<_> = works.iter().map(|it| (it.1, it.2)).collect();
    println!("at most {} at once", most_at_once(&spans));
    works
}

/// A server, the URL of a user, and whether that may publish and subscribe.
fn servers() -> [(RedisServer, String, bool); 2] {
    [true, false].map(|has_nudges| {
        let server = RedisServer::start();
        let quiet = ["on", ">PASSWORD", "~*", "+@all", "-publish", "-subscribe"];
        let user = ["ACL", "SETUSER", "quiet", "resetchannels"];
        server.command::<()>(&[&user[..], &quiet].concat());
        let url = match has_nudges {
            true => server.url(),
            false => format!("redis://quiet:PASSWORD@127.0.0.1:{}/", server.port()),
        };
        (server, url, has_nudges)
    })
}

/// The median round trip of a connection of its own.
async fn round_trip(server: &RedisServer) -> Duration {
    let connection = server.client().get_multiplexed_async_connection().await;
    let mut connection = connection.expect("a connection");
    let mut times = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        let ping = redis::cmd("PING").exec_async(&mut connection).await;
        ping.expect("an answer");
        times.push(begun.elapsed());
    }
    percentiles(times)[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_is_handed_over_soon() {
    for (server, url, has_nudges) in servers() {
        let workers: Vec<_> = (0..4).map(|_| start(&url, 20, "1 concurrent")).collect();
        sleep(8 * SECOND).await;
        let works = end(workers);
        let spans: Vec<_> = works.iter().map(|it| (it.1, it.2)).collect();
        assert_eq!(most_at_once(&spans), 1);
        let pairs = works.windows(2).filter(|it| it[0].0 != it[1].0);
        let gaps: Vec<_> = pairs.map(|it| it[1].1 - it[0].2).collect();
        let (count, [half, most, longest]) = (gaps.len(), percentiles(gaps));
        let round_trip = round_trip(&server).await;
        println!(
            "nudges {has_nudges}: {count} hand-overs, p50 {half:.1?}, p99 {most:.1?}, longest {longest:.1?}, \
             round trip {round_trip:.1?}"
        );
        let bound = match has_nudges {
            true => 2 * round_trip + SECOND / 100,
            false => NEXT,
        };
        assert!(half <= bound + SLOW / 5, "{half:?}");
        assert!(most <= bound + SLOW, "{most:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_that_are_released_together_reach_all_processes() {
    const PROCESSES: usize = 5;
    for (_server, url, has_nudges) in servers() {
        let quota = "5 concurrent";
        let workers: Vec<_> = (0..PROCESSES).map(|_| start(&url, 1_500, quota)).collect();
        let limiter = limiter(&url, quota).await;
        let mut released = Vec::new();
        for _ in 0..5 {
            let acquire = || limiter.acquire("a").priority(Priority::High);
            let permits = futures_util::future::join_all((0..PROCESSES).map(|_| acquire())).await;
            let hold = |it: Result<tower_throttle::Permit, _>| it.expect("a permit").hold();
            let places: Vec<_> = permits.into_iter().map(hold).collect();
            // Now all processes wait, and have called.
            sleep(SECOND * 3 / 2).await;
            released.push(now());
            drop(places);
            sleep(OTHERS + SECOND / 5).await;
        }
        sleep(2 * SECOND).await;
        let works = end(workers);
        let (mut next, mut others) = (Vec::new(), Vec::new());
        for at in released {
            let after = works.iter().filter(|it| it.1 >= at).take(PROCESSES);
            let waits: Vec<_> = after.map(|it| it.1 - at).collect();
            next.extend(&waits[..2]);
            others.extend(&waits[2..]);
        }
        let ([_, next, _], [half, others, _]) = (percentiles(next), percentiles(others));
        println!(
            "nudges {has_nudges}: p99 of the next two {next:.1?}; of others p50 {half:.1?}, p99 {others:.1?}"
        );
        assert!(next <= NEXT + SLOW, "{next:?}");
        assert!(others <= OTHERS + NEXT + SLOW, "{others:?}");
    }
}
