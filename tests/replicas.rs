//! Processes that share quotas on one Redis: they cancel requests, settle costs, hand over places, and are killed,
//! stopped and partitioned.
//!
//! ```sh
//! cargo test -p tower-throttle-tests --test integration replicas:: -- --nocapture            # prints the figures
//! ```

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use support::child::{self, Child, now};
use support::progress::{most_at_once, percentiles};
use support::proxy::Proxy;
use support::redis_server::RedisServer;
use support::spend::{build, under};
use tokio::time::timeout;
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Priority};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// The part of a process.
#[derive(Debug, Serialize, Deserialize)]
struct Role {
    redis: String,
    quotas: Vec<String>,
    loads: Vec<Load>,
}

/// Requests of one kind, one after the other by each caller.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Load {
    kind: String,
    callers: usize,
    /// The time from a departure to the next request.
    pause: Duration,
    is_high: bool,
    is_low: bool,
    /// The requests belong to a share that is named like the kind, and has this weight, unless that is 0.
    weight: u32,
    /// Half of the requests are cancelled, after up to two seconds.
    cancels: bool,
    /// A request holds its place for so long.
    holds: Option<Duration>,
    /// The estimated cost of a request. It costs anything up to this, and is settled after up to a second.
    tokens: Option<u32>,
}

/// The times are on the clock that all processes of this machine share.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Departure {
    kind: String,
    at: Duration,
    waited: Duration,
    tokens: u32,
    /// When its place is released, or its tokens are settled.
    until: Duration,
}

impl Load {
    fn new(kind: &str, callers: usize) -> Self {
        Self {
            kind: kind.to_owned(),
            callers,
            ..Self::default()
        }
    }

    async fn call(self, limiter: Limiter) {
        loop {
            let mut acquire = limiter.acquire("a").priority(match self {
                Self { is_high: true, .. } => Priority::High,
                Self { is_low: true, .. } => Priority::Low,
                _ => Priority::Normal,
            });
            if self.weight > 0 {
                acquire = acquire.share(&self.kind, self.weight);
            }
            if let Some(tokens) = self.tokens {
                acquire = acquire.cost_of("tokens", tokens);
            }
            let patience = match self.cancels && rand::random() {
                true => rand::random_range(0..2_000) * MS,
                false => 600 * SECOND,
            };
            let permit = match timeout(patience, acquire).await {
                Ok(Ok(permit)) => permit,
                // It was cancelled.
                Err(_) => continue,
                // The store was out for too long.
                Ok(Err(_)) => {
                    tokio::time::sleep(SECOND / 20).await;
                    continue;
                }
            };
            let at = now();
            if !permit.is_valid() {
                permit.forfeit();
                continue;
            }
            // The request departed at that time, however long this process was held up since.
            let mut departure = Departure {
                kind: self.kind.clone(),
                at,
                waited: permit.waited(),
                tokens: 1,
                until: at,
            };
            if let Some(span) = self.holds {
                let place = permit.hold();
                tokio::time::sleep(span).await;
                departure.until = now();
                child::say(child::text(&departure));
                drop(place);
                continue;
            }
            if let Some(estimate) = self.tokens {
                let (charge, after) = (permit.into_charge(), rand::random_range(100..1_000) * MS);
                departure.tokens = rand::random_range(estimate / 20..=estimate);
                departure.until += after;
                let tokens = departure.tokens;
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    charge.settle("tokens", tokens).expect("a correction");
                });
            }
            child::say(child::text(&departure));
            tokio::time::sleep(self.pause).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by another test as a process of its own"]
async fn replica() {
    let Some(role) = child::role() else { return };
    let role: Role = child::parse(&role);
    let store = RedisStore::connect(&role.redis).await;
    let quotas: Vec<_> = role.quotas.iter().map(String::as_str).collect();
    let limiter = build(under(&quotas).store(store.expect("a connection")));
    let callers = role.loads.into_iter().flat_map(|load| {
        let callers = load.callers;
        vec![load; callers]
    });
    let callers = callers.map(|load| tokio::spawn(load.call(limiter.clone())));
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("no panic");
    }
}

fn start(redis: &str, quotas: &[&str], loads: &[Load]) -> Child {
    let role = Role {
        redis: redis.to_owned(),
        quotas: quotas.iter().map(ToString::to_string).collect(),
        loads: loads.to_vec(),
    };
    child::spawn("replicas::replica", &child::text(&role), &[])
}

/// Kills the processes, and returns their departures by time.
fn end(replicas: impl IntoIterator<Item = Child>) -> Vec<Departure> {
    let lines = replicas.into_iter().flat_map(Child::kill9);
    let mut departures: Vec<Departure> = lines.map(|line| child::parse(&line)).collect();
    departures.sort_by_key(|it| it.at);
    departures
}

/// With their tokens.
fn history(departures: &[Departure]) -> History {
    let first = departures.first().expect("departures").at;
    let events = departures
        .iter()
        .map(|it| (it.at - first, it.tokens.into()));
    events.collect()
}

/// The departures between two times.
fn between(departures: &[Departure], from: Duration, until: Duration) -> Vec<&Departure> {
    let within = departures.iter();
    within.filter(|it| (from..until).contains(&it.at)).collect()
}

/// The tokens per second between two times.
fn rate(departures: &[Departure], from: Duration, until: Duration) -> f64 {
    let tokens = between(departures, from, until).into_iter();
    let tokens: u32 = tokens.map(|it| it.tokens).sum();
    f64::from(tokens) / (until - from).as_secs_f64()
}

const BURST: u64 = 5;
const HUNDRED: &[&str] = &["100/s gcra burst=5"];

fn check_hundred(departures: &[Departure]) {
    assert!(history(departures).burst(SECOND / 100) <= BURST);
}

/// Shares of weights 1, 2 and 5, spread unevenly over three processes.
#[test]
fn shares_divide_capacity_across_processes() {
    let server = RedisServer::start();
    let share = |name, weight, callers| Load {
        weight,
        ..Load::new(name, callers)
    };
    let loads = [
        vec![share("a", 1, 60), share("b", 2, 200), share("c", 5, 40)],
        vec![share("a", 1, 200), share("b", 2, 30)],
        vec![share("c", 5, 400)],
    ];
    let replicas = loads.map(|loads| start(&server.url(), HUNDRED, &loads));
    sleep(2 * SECOND);
    let from = now();
    sleep(8 * SECOND);
    let until = now();
    let departures = end(replicas);
    check_hundred(&departures);
    let rate = rate(&departures, from, until);
    assert!(rate >= 80.0, "{rate} per second");
    let departures = between(&departures, from, until);
    let mut parts: BTreeMap<&str, usize> = BTreeMap::new();
    for it in &departures {
        *parts.entry(&it.kind).or_default() += 1;
    }
    println!("{parts:?}, {rate:.1} per second");
    for (name, weight) in [("a", 1.0), ("b", 2.0), ("c", 5.0)] {
        let part = parts[name] as f64 / departures.len() as f64;
        let relative = part * 8.0 / weight;
        assert!((0.95..=1.05).contains(&relative), "{name}: {parts:?}");
    }
}

/// So long may a machine take that runs other tests at the same time.
const SLOW: Duration = Duration::from_millis(400);

/// The process may hold up others by what it was granted within one horizon, and by 200 ms.
const HELD_UP: Duration = Duration::from_millis(300);

#[test]
fn a_process_of_a_low_priority_that_is_stopped_partitioned_or_killed_holds_up_no_other() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let job = |name| Load {
        is_low: true,
        ..Load::new(name, 300)
    };
    let high = Load {
        is_high: true,
        pause: 150 * MS,
        ..Load::new("high", 4)
    };
    let doomed = start(&proxy.url(), HUNDRED, &[job("doomed")]);
    let other = start(&server.url(), HUNDRED, &[job("other")]);
    let interactive = start(&server.url(), HUNDRED, &[high]);
    sleep(2 * SECOND);
    let mut faults = Vec::new();
    let mut fault = |name, lasts: Duration| {
        faults.push((name, now(), lasts));
        sleep(lasts);
    };
    // It is stopped during a call, and so measures a round trip of five seconds.
    proxy.hold();
    sleep(SECOND / 5);
    doomed.sigstop();
    proxy.resume();
    fault("stopped", 5 * SECOND);
    doomed.sigcont();
    fault("continues", 2 * SECOND);
    proxy.hold();
    fault("partitioned", 3 * SECOND);
    proxy.resume();
    fault("reaches Redis again", 3 * SECOND);
    let mut departures = end([doomed]);
    fault("killed", 3 * SECOND);
    departures.extend(end([other, interactive]));
    departures.sort_by_key(|it| it.at);
    check_hundred(&departures);
    for (name, from, lasts) in faults {
        let until = from + lasts;
        let high = between(&departures, from, until).into_iter();
        let high = high.filter(|it| it.kind == "high");
        let longest = high.map(|it| it.waited).max().expect("departures");
        let rate = rate(&departures, from + SECOND, until);
        let all = between(&departures, from + SECOND, until).into_iter();
        let doomed = all.filter(|it| it.kind == "doomed").count();
        println!("{name}: {rate:.1} per second, {doomed} of its own, high waited {longest:?}");
        assert!(longest <= HELD_UP + SLOW, "{name}: {longest:?}");
        // A busy machine lengthens the guard, and so lowers the rate.
        assert!(rate >= 50.0, "{name}: {rate}");
        let is_alive = name == "continues" || name == "reaches Redis again";
        assert!(!is_alive || doomed > 0, "{name}: starves");
    }
}

#[test]
fn cancelled_requests_cost_no_rate_in_three_processes() {
    let server = RedisServer::start();
    let load = Load {
        cancels: true,
        ..Load::new("", 240)
    };
    let replicas = [0; 3].map(|_| start(&server.url(), &["100/2s"], std::slice::from_ref(&load)));
    sleep(2 * SECOND);
    let from = now();
    sleep(8 * SECOND);
    let until = now();
    let departures = end(replicas);
    history(&departures).assert_at_most(100, 2 * SECOND);
    let rate = rate(&departures, from, until);
    println!("{rate:.1} of 50 per second");
    // The rate on a machine with nothing else to do is asserted on a paused clock.
    assert!(rate >= 37.0, "{rate}");
}

/// If each request needs its whole estimate to be free, 83% can be used, and 52% without settlements.
#[test]
fn settled_costs_use_the_quota_and_never_exceed_it_whatever_is_lost() {
    let (server, window) = (RedisServer::start(), 3 * SECOND);
    let proxy = Proxy::start(server.port());
    let load = Load {
        tokens: Some(2_000),
        ..Load::new("", 4)
    };
    let quotas = ["60/3s", "20000/3s unit=tokens"];
    let mut replicas =
        Vec::from([0; 3].map(|_| start(&proxy.url(), &quotas, std::slice::from_ref(&load))));
    sleep(window);
    let quiet = now();
    sleep(window * 3);
    let lossy = now();
    proxy.cut_every_reply(b"EVALSHA", 10);
    sleep(SECOND);

    // It is killed before it has settled what it used.
    let doomed = replicas.pop().expect("three processes");
    let mut departures: Vec<Departure> = Vec::new();
    while departures.last().is_none_or(|last| now() >= last.until) {
        let line = doomed.next_line(60 * SECOND);
        departures.push(child::parse(&line));
    }
    departures.extend(end([doomed]));
    let killed = now();
    sleep(window * 2);
    let over = now();
    let cut = proxy.cut_replies();
    departures.extend(end(replicas));
    departures.sort_by_key(|it| it.at);

    history(&departures).assert_at_most(20_000, window);
    let requests = departures.iter().map(|it| it.at - departures[0].at);
    requests.collect::<History>().assert_at_most(60, window);
    let share = |from, until| rate(&departures, from, until) * 3.0 / 20_000.0;
    let (used, left) = (share(quiet, lossy), share(killed + window, over));
    println!("{used:.2} used, {left:.2} after the loss of a process and {cut} replies");
    assert!(used >= 0.7, "{used:.2} used");
    assert!(left > 0.1, "the other processes used {left:.2}");
    assert!(cut > 0, "no reply was lost");
}

/// Between processes that get nudges, in two round trips and 10 ms. Others look for a place every 120 ms.
#[test]
fn a_place_is_handed_over_soon() {
    let server = RedisServer::start();
    let quiet = server.user(&["+@all", "-publish", "-subscribe"]);
    for (url, bound) in [(server.url(), 12 * MS), (quiet, 120 * MS)] {
        let workers = ["a", "b", "c", "d"].map(|name| {
            let load = Load {
                holds: Some(20 * MS),
                ..Load::new(name, 1)
            };
            start(&url, &["1 concurrent"], &[load])
        });
        sleep(5 * SECOND);
        let works = end(workers);
        let spans: Vec<_> = works.iter().map(|it| (it.at, it.until)).collect();
        assert_eq!(most_at_once(&spans), 1);
        let pairs = works.windows(2).filter(|it| it[0].kind != it[1].kind);
        let gaps: Vec<_> = pairs.map(|it| it[1].at - it[0].until).collect();
        let (count, [half, most, _]) = (gaps.len(), percentiles(gaps));
        println!("{count} hand-overs, p50 {half:.1?}, p99 {most:.1?}");
        // The rest is for a machine that runs other tests.
        assert!(half <= bound + SLOW / 4, "{half:?}");
        assert!(most <= bound + SLOW, "{most:?}");
        server.command::<()>(&["FLUSHALL"]);
    }
}
