//! Three processes that share a quota of requests and one of tokens, and settle the tokens after each departure.
//!
//! ```sh
//! cargo test -p tower-throttle-tests --test integration settlement_replicas -- --nocapture    # prints the figures
//! # 2,000,000 tokens and 1,000 requests per 60 s, estimated at 4,000 tokens each, for 180 s after the first window:
//! SETTLEMENT="2000000 1000 60 4000 180" cargo test -p tower-throttle-tests --test integration longer -- --ignored --nocapture
//! ```

use std::env;
use std::thread::sleep;
use std::time::Duration;

use support::child::{self, Child, now};
use support::command_stats::CommandStats;
use support::proxy::Proxy;
use support::redis_server::RedisServer;
use support::spend::build;
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Quota};

const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests of each process that wait at a time.
const CALLERS: usize = 4;

/// The shortest and the longest time from a departure to its settlement, in milliseconds.
const SETTLES_AFTER: std::ops::RangeInclusive<u64> = 100..=1_000;

/// A correction is in Redis, and no request departs that was granted before, so long after it was made.
const APPLIED: Duration = Duration::from_millis(500);

/// The quotas and the load.
#[derive(Debug, Clone, Copy)]
struct Case {
    tokens: u32,
    requests: u32,
    window: Duration,
    estimate: u32,
    /// The least and the most that a request costs.
    actual: (u32, u32),
    /// Requests that depart later cost what was estimated.
    exact_from: Duration,
}

const CASE: Case = Case {
    tokens: 10_000,
    requests: 60,
    window: Duration::from_secs(6),
    estimate: 2_000,
    actual: (100, 2_000),
    exact_from: Duration::MAX,
};

/// A request that departed, with times on the clock of the machine.
#[derive(Debug, Clone, Copy)]
struct Departure {
    at: Duration,
    tokens: u64,
    /// When the tokens are settled.
    settles: Duration,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Case {
    /// Starts the three processes.
    fn start(&self, redis: &str) -> Vec<Child> {
        let numbers = [
            u64::from(self.tokens),
            u64::from(self.requests),
            micros(self.window),
            u64::from(self.estimate),
            u64::from(self.actual.0),
            u64::from(self.actual.1),
            micros(self.exact_from),
        ];
        let role = format!("{redis} {}", numbers.map(|it| it.to_string()).join(" "));
        let start = |_| child::spawn("settlement_replicas::replica", &role, &[]);
        (0..3).map(start).collect()
    }

    /// The case and the URL of Redis, in a process that [`start`](Self::start) has started.
    fn parse(role: &str) -> (Self, &str) {
        let (redis, numbers) = role.split_once(' ').expect("several words");
        let numbers = parse(numbers);
        let small = |nth: usize| u32::try_from(numbers[nth]).expect("a small number");
        let case = Self {
            tokens: small(0),
            requests: small(1),
            window: Duration::from_micros(numbers[2]),
            estimate: small(3),
            actual: (small(4), small(5)),
            exact_from: Duration::from_micros(numbers[6]),
        };
        (case, redis)
    }

    async fn limiter(&self, redis: &str) -> Limiter {
        let store = RedisStore::connect(redis).await.expect("a connection");
        let requests = Quota::new(self.requests, self.window);
        let tokens = Quota::new(self.tokens, self.window).unit("tokens");
        build(
            Limiter::builder()
                .quota(requests)
                .quota(tokens)
                .store(store),
        )
    }

    /// The part of the tokens that departed from then until then.
    fn share(&self, departures: &[Departure], from: Duration, until: Duration) -> f64 {
        let within = departures
            .iter()
            .filter(|it| (from..until).contains(&it.at));
        let used: u64 = within.map(|it| it.tokens).sum();
        let windows = (until - from).as_secs_f64() / self.window.as_secs_f64();
        used as f64 / (f64::from(self.tokens) * windows)
    }

    /// Checks both quotas, the tokens with a limit of `tokens`, and returns the most tokens of any window.
    fn check(&self, departures: &[Departure], tokens: u64) -> u64 {
        let first = departures.iter().map(|it| it.at).min();
        let first = first.expect("departures");
        let requests: History = departures.iter().map(|it| it.at - first).collect();
        requests.assert_at_most(self.requests.into(), self.window);
        let costs = departures.iter().map(|it| (it.at - first, it.tokens));
        let costs: History = costs.collect();
        costs.assert_at_most(tokens, self.window);
        costs.most_in_any(self.window)
    }

    /// By how much the requests that were not settled at that time cost more than was estimated.
    fn underestimated(&self, departures: &[Departure], at: Duration) -> u64 {
        let unsettled = |it: &&Departure| it.at <= at && at < it.settles + APPLIED;
        let unsettled = departures.iter().filter(unsettled);
        let excess = unsettled.map(|it| it.tokens.saturating_sub(self.estimate.into()));
        excess.sum()
    }
}

fn parse(numbers: &str) -> Vec<u64> {
    let numbers = numbers.split(' ').map(str::parse);
    numbers.collect::<Result<_, _>>().expect("whole numbers")
}

impl Departure {
    fn parse(line: &str) -> Self {
        let [at, tokens, settles] = parse(line)[..] else {
            panic!("{line} is no departure");
        };
        Self {
            at: Duration::from_micros(at),
            tokens,
            settles: Duration::from_micros(settles),
        }
    }
}

/// Kills the processes, and returns their departures.
fn end(replicas: impl IntoIterator<Item = Child>) -> Vec<Departure> {
    let lines = replicas.into_iter().flat_map(Child::kill9);
    lines.map(|line| Departure::parse(&line)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by another test as a process of its own"]
async fn replica() {
    let Some(role) = child::role() else { return };
    let (case, redis) = Case::parse(&role);
    let limiter = case.limiter(redis).await;
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| tokio::spawn(call(limiter.clone(), case)))
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
}

/// Sends one request after the other, without end.
async fn call(limiter: Limiter, case: Case) {
    loop {
        let acquire = limiter.acquire("a").cost_of("tokens", case.estimate);
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
        // The request departed at that time, however long this process was held up since.
        let charge = permit.into_charge();
        let (least, most) = case.actual;
        let tokens = match at < case.exact_from {
            true => rand::random_range(least..=most),
            false => case.estimate,
        };
        let after = Duration::from_millis(rand::random_range(SETTLES_AFTER));
        child::say(format!("{} {tokens} {}", micros(at), micros(at + after)));
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            charge.settle("tokens", tokens).expect("a correction");
        });
    }
}

/// If each request needs its whole estimate to be free, 83% can be used, and 52% without settlements.
#[test]
fn settled_costs_use_the_quota_and_never_exceed_it_whatever_is_lost() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let mut replicas = CASE.start(&proxy.url());
    sleep(CASE.window);
    let quiet = now();
    sleep(CASE.window * 3);
    let lossy = now();
    let calls = CommandStats::of(&server);
    proxy.cut_every_reply(b"EVALSHA", 10);
    sleep(SECOND);

    let doomed = replicas.pop().expect("three processes");
    let mut departures = Vec::new();
    loop {
        let departure = Departure::parse(&doomed.next_line(PATIENCE));
        departures.push(departure);
        if now() < departure.settles {
            break;
        }
    }
    departures.extend(end([doomed]));
    let killed = now();
    sleep(CASE.window * 2);
    let over = now();
    let calls = CommandStats::of(&server).since(&calls);
    let cut = proxy.cut_replies();
    departures.extend(end(replicas));

    let most = CASE.check(&departures, CASE.tokens.into());
    let used = CASE.share(&departures, quiet, lossy);
    let left = CASE.share(&departures, killed + CASE.window, over);
    println!(
        "{:.1}% used, {:.1}% after the loss of a process and {cut} of {} replies; at most {most} in a window",
        used * 100.0,
        left * 100.0,
        calls.calls("evalsha"),
    );
    assert!(used >= 0.7, "{:.1}% used", used * 100.0);
    assert!(left > 0.1, "the other processes used {:.1}%", left * 100.0);
    assert!(cut > 0, "no reply was lost");
}

#[test]
fn underestimated_costs_exceed_the_limit_by_what_is_not_settled() {
    let server = RedisServer::start();
    let case = Case {
        actual: (1, 2 * CASE.estimate),
        exact_from: now() + CASE.window * 3,
        ..CASE
    };
    let replicas = case.start(&server.url());
    sleep(case.window * 11 / 2);
    let departures = end(replicas);
    let limit = u64::from(case.tokens);
    let unsettled = departures
        .iter()
        .map(|it| case.underestimated(&departures, it.at));
    let unsettled = unsettled.max().expect("departures");
    let most = case.check(&departures, limit + unsettled);
    let exact: Vec<_> = departures
        .iter()
        .filter(|it| it.at >= case.exact_from)
        .copied()
        .collect();
    let most_after = case.check(&exact, limit);
    println!(
        "at most {} above the limit, {unsettled} too little estimated at a time; {most_after} after a window",
        most.saturating_sub(limit)
    );
    assert!(unsettled > 0, "no cost was underestimated");
}

#[test]
#[ignore = "takes four minutes"]
fn longer_windows_are_used_almost_entirely() {
    let text = env::var("SETTLEMENT").unwrap_or_else(|_| "100000 600 60 2000 180".to_owned());
    let numbers = parse(&text);
    let small = |nth: usize| u32::try_from(numbers[nth]).expect("a small number");
    let case = Case {
        tokens: small(0),
        requests: small(1),
        window: SECOND * small(2),
        estimate: small(3),
        actual: (small(3) / 20, small(3)),
        exact_from: Duration::MAX,
    };
    let server = RedisServer::start();
    let replicas = case.start(&server.url());
    sleep(case.window);
    let from = now();
    sleep(SECOND * small(4));
    let until = now();
    let bytes: u64 = server.command(&["STRLEN", "throttle:{a}"]);
    let departures = end(replicas);
    let most = case.check(&departures, case.tokens.into());
    let used = case.share(&departures, from, until);
    println!(
        "{:.1}% used, at most {most} in a window, {bytes} bytes",
        used * 100.0
    );
    assert!(
        used >= 0.92 || env::var("SETTLEMENT").is_ok(),
        "{:.1}% used",
        used * 100.0
    );
}
