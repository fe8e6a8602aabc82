//! Processes of several priorities and shares over Redis: killed, stopped and partitioned.
//!
//! ```sh
//! cargo test -p tower-throttle-tests --test integration shares -- --nocapture            # prints the figures
//! cargo test -p tower-throttle-tests --test integration a_minute -- --ignored --nocapture # 60 s of shares
//! ```

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use support::child::{self, Child, now};
use support::proxy::Proxy;
use support::redis_server::RedisServer;
use support::spend::build;
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Limiter, Priority, Quota};

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: u32 = 100;
const BURST: u32 = 5;

/// Requests of one kind, in one process: one after the other by each caller, so many milliseconds apart.
#[derive(Debug, Clone)]
struct Load {
    priority: Priority,
    share: String,
    weight: u32,
    callers: u32,
    pause: u64,
}

#[derive(Debug, Clone)]
struct Departure {
    /// Since 1970, by the clock that all processes share.
    at: Duration,
    waited: Duration,
    kind: String,
}

/// Waiting requests of a share.
fn share(name: &str, weight: u32, callers: u32) -> String {
    format!("normal {name} {weight} {callers} 0")
}

impl Load {
    fn parse(text: &str) -> Self {
        let words: Vec<_> = text.split(' ').collect();
        let [priority, share, weight, callers, pause] = words[..] else {
            panic!("{text} is no load");
        };
        let number = |text: &str| text.parse().expect("a number");
        Self {
            priority: match priority {
                "high" => Priority::High,
                "low" => Priority::Low,
                _ => Priority::Normal,
            },
            share: share.to_owned(),
            weight: number(weight),
            callers: number(callers),
            pause: number(pause).into(),
        }
    }

    async fn call(self, limiter: Limiter) {
        loop {
            let acquire = limiter.acquire("a").priority(self.priority);
            let acquire = match self.weight {
                0 => acquire,
                weight => acquire.share(&self.share, weight),
            };
            let Ok(permit) = acquire.await else {
                // The store was out for too long.
                tokio::time::sleep(SECOND / 20).await;
                continue;
            };
            let at = now();
            if !permit.is_valid() {
                permit.forfeit();
                continue;
            }
            let waited = permit.waited().as_micros();
            let kind = &self.share;
            child::say(format!("{} {waited} {kind}", at.as_micros()));
            tokio::time::sleep(Duration::from_millis(self.pause)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by another test as a process of its own"]
async fn replica() {
    let Some(role) = child::role() else { return };
    let mut role = role.split(", ");
    let redis = role.next().expect("a URL");
    let store = RedisStore::connect(redis).await.expect("a connection");
    let quota = Quota::per_second(LIMIT).algorithm(Algorithm::Gcra { burst: BURST });
    let limiter = build(Limiter::builder().quota(quota).store(store));
    let loads = role.map(Load::parse);
    let callers = loads.flat_map(|load| vec![load.clone(); load.callers as usize]);
    let callers = callers.map(|load| tokio::spawn(load.call(limiter.clone())));
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("no panic");
    }
}

fn start(redis: &str, loads: &[String]) -> Child {
    let role = format!("{redis}, {}", loads.join(", "));
    child::spawn("shares::replica", &role, &[])
}

/// Kills the processes, and returns their departures by time.
fn end(replicas: impl IntoIterator<Item = Child>) -> Vec<Departure> {
    let lines = replicas.into_iter().flat_map(Child::kill9);
    let departures = lines.map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let [at, waited, kind] = words[..] else {
            panic!("{line} is no departure");
        };
        let micros = |text: &str| Duration::from_micros(text.parse().expect("a number"));
        Departure {
            at: micros(at),
            waited: micros(waited),
            kind: kind.to_owned(),
        }
    });
    let mut departures: Vec<_> = departures.collect();
    departures.sort_by_key(|it| it.at);
    departures
}

/// Asserts the bound of the quota.
fn check(departures: &[Departure]) {
    let first = departures.first().expect("departures").at;
    let history: History = departures.iter().map(|it| it.at - first).collect();
    assert!(history.burst(SECOND / LIMIT) <= BURST.into(), "{history:?}");
}

/// The departures between two times.
fn between(departures: &[Departure], from: Duration, until: Duration) -> Vec<&Departure> {
    let within = departures.iter();
    within.filter(|it| (from..until).contains(&it.at)).collect()
}

/// Shares of weights 1, 2 and 5, spread unevenly over three processes.
fn divide(lasts: Duration) {
    let server = RedisServer::start();
    let redis = server.url();
    let replicas = [
        start(
            &redis,
            &[share("a", 1, 60), share("b", 2, 200), share("c", 5, 40)],
        ),
        start(&redis, &[share("a", 1, 200), share("b", 2, 30)]),
        start(&redis, &[share("c", 5, 400)]),
    ];
    sleep(2 * SECOND);
    let from = now();
    sleep(lasts);
    let until = now();
    let departures = end(replicas);
    check(&departures);
    let departures = between(&departures, from, until);
    let mut parts: BTreeMap<&str, usize> = BTreeMap::new();
    for it in &departures {
        *parts.entry(&it.kind).or_default() += 1;
    }
    let rate = departures.len() as f64 / lasts.as_secs_f64();
    println!("{parts:?}, {rate:.1} per second");
    assert!(rate >= 0.8 * f64::from(LIMIT), "{rate} per second");
    for (name, weight) in [("a", 1.0), ("b", 2.0), ("c", 5.0)] {
        let part = parts[name] as f64 / departures.len() as f64;
        let relative = part * 8.0 / weight;
        assert!((0.95..=1.05).contains(&relative), "{name}: {parts:?}");
    }
}

#[test]
fn shares_divide_capacity_across_processes() {
    divide(8 * SECOND);
}

#[test]
#[ignore = "takes a minute"]
fn shares_divide_capacity_across_processes_for_a_minute() {
    divide(60 * SECOND);
}

/// So long may a machine take that runs other tests at the same time.
const SLOW: Duration = Duration::from_millis(400);

/// The process may hold up others by what it was granted within one horizon, and by 200 ms.
const HELD_UP: Duration = Duration::from_millis(300);

#[test]
fn a_process_of_a_low_priority_that_is_stopped_partitioned_or_killed_holds_up_no_other() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let redis = server.url();
    let job = |name: &str| format!("low {name} 0 300 0");
    let doomed = start(&proxy.url(), &[job("doomed")]);
    let other = start(&redis, &[job("other")]);
    let interactive = start(&redis, &["high high 0 4 150".to_owned()]);
    sleep(2 * SECOND);
    let mut faults = Vec::new();
    let mut fault = |name, until: Duration| {
        faults.push((name, now(), until));
        sleep(until);
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
    check(&departures);
    for (name, from, lasts) in faults {
        let high = between(&departures, from, from + lasts);
        let high = high.iter().filter(|it| it.kind == "high");
        let longest = high.map(|it| it.waited).max().expect("departures");
        let until = from + lasts;
        let all = between(&departures, from + SECOND, until);
        let rate = all.len() as f64 / (lasts - SECOND).as_secs_f64();
        let doomed = all.iter().filter(|it| it.kind == "doomed").count();
        println!("{name}: {rate:.1} per second, {doomed} of its own, high waited {longest:?}");
        assert!(longest <= HELD_UP + SLOW, "{name}: {longest:?}");
        assert!(rate >= 0.8 * f64::from(LIMIT), "{name}: {rate}");
        let is_alive = name == "continues" || name == "reaches Redis again";
        assert!(!is_alive || doomed > 0, "{name}: starves");
    }
}
