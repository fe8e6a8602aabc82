//! Measures 100 and 1,000 processes that wait for one key of one Redis.
//!
//! A process is simulated by a limiter with connections of its own: one for its calls, and one for nudges. Each has two
//! callers, which ask for one permit after another, so that it always has requests in its queue. All processes share one
//! key with a limit of 100 per second. Figures begin 15 s after the last process has connected, for 20 s.
//!
//! Bounds, for 1,000 processes: at most 600 store calls per second; at most half a core for Redis; at least 97% of N / (W + guard) granted;
//! never more departures in any window than the quota allows.

use std::cell::RefCell;

use futures_util::future::{join_all, try_join_all};
use tokio::time::Instant;
use tower_throttle::test_util::history::History;
use tower_throttle_benches::*;

const PROCESSES: [u32; 2] = [100, 1_000];
/// The requests of a process that wait at any time.
const CALLERS: usize = 2;
const LIMIT: u32 = 100;
const WINDOW: Duration = Duration::from_secs(1);
const BURST: u32 = 10;
const WARM_UP: Duration = Duration::from_secs(15);
const TIME: Duration = Duration::from_secs(20);

const ALGORITHMS: [(&str, Algorithm); 2] = [
    ("sliding log", Algorithm::SlidingLog),
    ("gcra", Algorithm::Gcra { burst: BURST }),
];

fn main() -> anyhow::Result<()> {
    measure(0, run)
}

async fn run(output: &mut Output) -> anyhow::Result<()> {
    let mut table = Table::new(
        "processes wait for one key with 100 per second",
        "processes | algorithm | store calls per second | store calls per permit | us in scripts per call | \
         us of redis CPU per call | redis cores | permits per second | of the allowed | most in any second",
    );
    let cases = PROCESSES.map(|count| ALGORITHMS.map(|it| (count, it)));
    for &(processes, (name, algorithm)) in cases.as_flattened() {
        eprintln!("{processes} processes, {name}");
        run_processes(processes, name, algorithm, output, &mut table).await?;
    }
    println!("{table}");
    Ok(())
}

/// Departures per second, by the times from the first 100 to the last 100: all windows may have the same bursts.
fn rate(departures: &[Instant]) -> f64 {
    let others = departures.len().saturating_sub(LIMIT as usize);
    let spans = departures[others..].iter().zip(departures);
    let spans: Duration = spans.map(|(last, first)| *last - *first).sum();
    others as f64 * f64::from(LIMIT) / spans.as_secs_f64().max(1e-9)
}

async fn run_processes(
    processes: u32,
    name: &str,
    algorithm: Algorithm,
    output: &mut Output,
    table: &mut Table,
) -> anyhow::Result<()> {
    let server = RedisServer::start();
    let mut meter = Meter::new(&server).await?;
    let quota = Quota::new(LIMIT, WINDOW).algorithm(algorithm);
    let mut limiters = Vec::new();
    while limiters.len() < output.count(processes) as usize {
        let connecting = (0..10).map(async |_| -> anyhow::Result<_> {
            let store = server.store().await;
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
        tokio::time::sleep(output.time(WARM_UP)).await;
        let before = meter.mark().await?;
        let (begin, first) = (Instant::now(), departures.borrow().len());
        tokio::time::sleep(output.time(TIME)).await;
        let (time, traffic) = (begin.elapsed(), meter.since(&before).await?);
        anyhow::Ok((time, rate(&departures.borrow()[first..]), traffic))
    };
    let (time, rate, traffic) = tokio::select! {
        measured = measuring => measured?,
        _ = join_all(callers) => unreachable!("callers do not end"),
    };
    let history: History = departures.into_inner().into_iter().collect();
    let (allowed, bound) = match algorithm {
        Algorithm::Gcra { burst } => (WINDOW, LIMIT + burst - 1), // Its tolerance covers the guard.
        _ => (WINDOW + guard, LIMIT),
    };
    // The part of N / (W + guard) that departed.
    let granted = rate * allowed.as_secs_f64() / f64::from(LIMIT);
    let most = history.most_in_any(WINDOW) as f64;
    let per_second = |count: f64| count / time.as_secs_f64();
    let (calls, per_call) = (per_second(traffic.calls), traffic.per(traffic.calls));
    let cores = per_second(traffic.cpu_micros / 1e6);
    table.row([
        count(processes),
        text(name),
        figure(calls),
        ratio(calls / rate),
        figure(per_call.script_micros),
        figure(per_call.cpu_micros),
        ratio(cores),
        figure(rate),
        format!("{granted:.4}"),
        count(most),
    ]);
    let claim = |what: &str| format!("{processes} processes, {name}, {what}");
    output.at_most(claim("most in any second"), most, bound.into());
    if processes == PROCESSES[1] {
        output.at_most(claim("store calls per second"), calls, 600.0);
        output.at_most(claim("redis cores"), cores, 0.5);
        output.at_least(claim("granted of the allowed rate"), granted, 0.97);
    }
    Ok(())
}
