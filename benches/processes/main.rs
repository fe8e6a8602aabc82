//! Measures 100 and 1,000 processes that wait for one key of one Redis.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench processes                     # a table, in two and a half minutes
//! cargo bench -p tower-throttle-benches --bench processes -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! A process is simulated by a limiter with connections of its own: one for its calls, and one for nudges. Each has two
//! callers, which ask for one permit after another, so that it always has requests in its queue. All processes share one
//! key with a limit of 100 per second. Figures begin 15 s after the last process has connected, for 20 s.
//!
//! Bounds, for 1,000 processes: at most 600 store calls per second; at most half a core for Redis; at least 97% of N / (W + guard) granted;
//! never more departures in any window than the quota allows.

use std::cell::RefCell;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::time::Instant;
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Limiter, Quota};
use tower_throttle_benches::support::{
    Cell, Output, Progress, RedisServer, Table, until_asked_to_end,
};
use tower_throttle_benches::traffic::{Meter, Traffic};

const PROCESSES: [u64; 2] = [100, 1_000];
/// The requests of a process that wait at any time.
const CALLERS: usize = 2;
const LIMIT: u32 = 100;
const WINDOW: Duration = Duration::from_secs(1);
const BURST: u32 = 10;
const WARM_UP: Duration = Duration::from_secs(15);
const TIME: Duration = Duration::from_secs(20);
/// So many processes connect at the same time.
const CONNECTING: usize = 10;

const ALGORITHMS: [(&str, Algorithm); 2] = [
    ("sliding log", Algorithm::SlidingLog),
    ("gcra", Algorithm::Gcra { burst: BURST }),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let output = Output::parse("Measures a thousand processes that wait for one key");
    until_asked_to_end(run(output)).await
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let mut table = Table::new(
        "processes wait for one key with 100 per second",
        &[
            "processes",
            "algorithm",
            "store calls per second",
            "store calls per permit",
            "us in scripts per call",
            "us of redis CPU per call",
            "redis cores",
            "permits per second",
            "of the allowed",
            "most in any second",
        ],
    );
    let cases = PROCESSES.map(|count| ALGORITHMS.map(|it| (count, it)));
    let mut progress = Progress::new(cases.as_flattened().len());
    for &(processes, (name, algorithm)) in cases.as_flattened() {
        progress.begin(&format!("{processes} processes, {name}"));
        let figures = measure(processes, algorithm, &output).await?;
        let Traffic { calls, .. } = figures.traffic;
        let per_second = |count: f64| count / figures.time.as_secs_f64();
        let permits = figures.permits as f64;
        let cores = per_second(figures.traffic.cpu_micros as f64 / 1e6);
        let granted = per_second(permits) / figures.allowed;
        table.row([
            Cell::Count(processes),
            Cell::text(name),
            Cell::Figure(per_second(calls as f64)),
            Cell::Ratio(calls as f64 / permits),
            Cell::Figure(figures.traffic.script_micros as f64 / calls as f64),
            Cell::Figure(figures.traffic.cpu_micros as f64 / calls as f64),
            Cell::Ratio(cores),
            Cell::Figure(per_second(permits)),
            Cell::Fraction(granted),
            Cell::Count(figures.most),
        ]);
        let claim = |what: &str| format!("{processes} processes, {name}, {what}");
        let most = figures.most as f64;
        output.at_most(claim("most in any second"), most, figures.bound);
        if processes < PROCESSES[1] {
            continue;
        }
        output.at_most(
            claim("store calls per second"),
            per_second(calls as f64),
            600.0,
        );
        output.at_most(claim("redis cores"), cores, 0.5);
        output.at_least(claim("granted of the allowed rate"), granted, 0.97);
    }
    output.table(&table);
    output.finish()
}

struct Figures {
    time: Duration,
    permits: usize,
    traffic: Traffic,
    /// Departures per second that the quota allows, less the guard.
    allowed: f64,
    /// The most departures in any window, from the first one on.
    most: u64,
    bound: f64,
}

async fn measure(processes: u64, algorithm: Algorithm, output: &Output) -> anyhow::Result<Figures> {
    let server = RedisServer::start().await?;
    let mut meter = Meter::new(server.connect().await?);
    let quota = Quota::new(LIMIT, WINDOW).algorithm(algorithm);
    let mut limiters = Vec::new();
    while limiters.len() < output.options().count(processes) as usize {
        let connecting = (0..CONNECTING).map(async |_| -> anyhow::Result<_> {
            let store = RedisStore::connect(&server.url()).await?;
            let store = store.timeout(Duration::from_secs(20));
            Ok(Limiter::builder().store(store).quota(quota).build()?)
        });
        limiters.extend(try_join_all(connecting).await?);
    }
    let guard = limiters[0].policy().guard();
    let departures = RefCell::new(Vec::new());
    let callers = limiters.iter().flat_map(|limiter| {
        let departures = &departures;
        (0..CALLERS).map(async move |_| {
            loop {
                // A server that is too slow for its calls is out, for a while.
                let Ok(permit) = limiter.acquire("hot").await else {
                    continue;
                };
                match permit.is_valid() {
                    true => departures.borrow_mut().push(Instant::now()),
                    false => permit.forfeit(),
                }
            }
        })
    });
    let measuring = async {
        tokio::time::sleep(output.options().time(WARM_UP)).await;
        let before = meter.mark().await?;
        let (begin, first) = (Instant::now(), departures.borrow().len());
        tokio::time::sleep(output.options().time(TIME)).await;
        let (time, last) = (begin.elapsed(), departures.borrow().len());
        let traffic = meter.since(&before).await?;
        anyhow::Ok((time, last - first, traffic))
    };
    let (time, permits, traffic) = tokio::select! {
        measured = measuring => measured?,
        _ = join_all(callers) => unreachable!("callers do not end"),
    };
    let history: History = departures.into_inner().into_iter().collect();
    let (allowed, bound) = match algorithm {
        // Its tolerance covers the guard.
        Algorithm::Gcra { burst } => (WINDOW, LIMIT + burst - 1),
        _ => (WINDOW + guard, LIMIT),
    };
    Ok(Figures {
        time,
        permits,
        traffic,
        allowed: f64::from(LIMIT) / allowed.as_secs_f64(),
        most: history.most_in_any(WINDOW),
        bound: bound.into(),
    })
}
