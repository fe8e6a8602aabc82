//! Processes that share quotas in two units on one Redis, and correct their costs.

use std::thread::sleep;

use serde::{Deserialize, Serialize};
use support::child::{self, Child, now};
use support::proxy::Proxy;

use crate::prelude::*;

const WINDOW: Duration = Duration::from_secs(3);

/// The estimated cost of a request. It costs anything up to this, and is settled after up to a second.
const ESTIMATE: u32 = 2_000;

/// The times are on the clock that all processes of this machine share.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Departure {
    at: Duration,
    tokens: u32,
    settled: Duration,
}

/// Sends one request after the other.
async fn call(limiter: Limiter) {
    loop {
        let Ok(permit) = limiter.acquire("a").cost_of("tokens", ESTIMATE).await else {
            // The store was out for too long.
            tokio::time::sleep(50 * MS).await;
            continue;
        };
        let at = now();
        if !permit.is_valid() {
            permit.forfeit();
            continue;
        }
        let (charge, after) = (permit.into_charge(), rand::random_range(100..1_000) * MS);
        let tokens = rand::random_range(ESTIMATE / 20..=ESTIMATE);
        let settled = at + after;
        child::say(child::text(&Departure {
            at,
            tokens,
            settled,
        }));
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            charge.settle("tokens", tokens).expect("a correction");
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by another test as a process of its own"]
async fn replica() {
    let Some(redis) = child::role() else { return };
    let store = RedisStore::connect(&redis).await.expect("a connection");
    let limiter = build(under(&["60/3s", "20000/3s unit=tokens"]).store(store));
    futures_util::future::join_all((0..4).map(|_| call(limiter.clone()))).await;
}

/// Kills the processes, and returns their departures.
fn end(replicas: impl IntoIterator<Item = Child>) -> impl Iterator<Item = Departure> {
    let lines = replicas.into_iter().flat_map(Child::kill9);
    lines.map(|line| child::parse(&line))
}

/// If each request needs its whole estimate to be free, 83% can be used, and 52% without settlements.
#[test]
fn settled_costs_use_the_quota_and_never_exceed_it_whatever_is_lost() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let spawn = |_| child::spawn("replicas::replica", &proxy.url(), &[]);
    let mut replicas: Vec<_> = (0..3).map(spawn).collect();
    sleep(WINDOW);
    let quiet = now();
    sleep(WINDOW * 3);
    let lossy = now();
    proxy.cut_every_reply(b"EVALSHA", 10);
    sleep(WINDOW / 3);

    // It is killed before it has settled what it used.
    let doomed = replicas.pop().expect("three processes");
    let mut departures: Vec<Departure> = Vec::new();
    while departures.last().is_none_or(|last| now() >= last.settled) {
        let line = doomed.next_line(60 * WINDOW);
        departures.push(child::parse(&line));
    }
    departures.extend(end([doomed]));
    let killed = now();
    sleep(WINDOW * 2);
    let over = now();
    let cut = proxy.cut_replies();
    departures.extend(end(replicas));
    departures.sort_by_key(|it| it.at);

    let first = departures[0].at;
    let tokens = departures
        .iter()
        .map(|it| (it.at - first, it.tokens.into()));
    tokens.collect::<History>().assert_at_most(20_000, WINDOW);
    let requests = departures.iter().map(|it| it.at - first);
    requests.collect::<History>().assert_at_most(60, WINDOW);
    let share = |from: Duration, until: Duration| {
        let within = departures
            .iter()
            .filter(|it| (from..until).contains(&it.at));
        let tokens: u32 = within.map(|it| it.tokens).sum();
        f64::from(tokens) * 3.0 / (until - from).as_secs_f64() / 20_000.0
    };
    let (used, left) = (share(quiet, lossy), share(killed + WINDOW, over));
    println!("{used:.2} used, {left:.2} after the loss of a process and {cut} replies");
    assert!(used >= 0.7, "{used:.2} used");
    assert!(left > 0.1, "the other processes used {left:.2}");
    assert!(cut > 0, "no reply was lost");
}
