//! The cost of a permit beside the least cost of a call to Redis.
//!
//! ```sh
//! cargo bench --bench floor                    # a table
//! cargo bench --bench floor -- --json --check  # lines of JSON; fails if a bound is not met
//! ```
//!
//! | what | stands for |
//! | --- | --- |
//! | PING | the way there and back |
//! | GET, SET PX | the same with state, in one round trip of two commands: no limiter, as others may come between |
//! | an empty script | what Redis takes to run any script: no limiter that decides in one is below it |
//! | TIME, GET, SET PX, in scripts | what a script adds that asks for the time, reads state and writes it with an expiry; and all of it, as a limiter must |
//! | acquire | `Limiter::acquire`, granted at once: by GCRA, by fixed windows, by short and long sliding windows, for one request and for 64 at the same time |
//!
//! All have one connection to a `redis-server` of the benchmark's own. Figures are microseconds and bytes
//! per call:
//!
//! - as its caller sees it, who makes one call after the other;
//! - in the command, which is `usec` in `INFO commandstats`: of a script with all that it runs;
//! - of the server's CPU, with reading, parsing and writing, while one caller calls;
//! - bytes each way, by `INFO stats`, which counts what TCP carries and not how;
//! - the same two times with 64 callers: 1 over the rate of all calls, and the server's CPU.
//!
//! Cases take turns in blocks, and figures are medians over the rounds.
//!
//! With 64 callers, each acquires for a key of its own, so that they share no call for a key.
//!
//! Bounds: for one caller, a permit takes at most twice as long as the script that does TIME, GET and SET PX and
//! nothing else. For each of 64 requests in one call, the command takes at most a tenth of the time for one request.

mod case;
#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, reason = "it counts calls, too")]
#[path = "../growth/usage.rs"]
mod usage;

use std::time::{Duration, Instant};

use clap::Parser;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::aio::MultiplexedConnection;
use tower_throttle::{Algorithm, Limiter, Quota, WindowStart};

use self::case::Case;
use self::support::{
    Cell, Options, Output, Progress, RedisServer, Table, median, until_asked_to_end,
};
use self::usage::Usage;

const TIME: Duration = Duration::from_secs(15);
/// How many calls make a block.
const CALLS: u32 = 256;
/// How many callers there are besides one.
const CALLERS: usize = 64;
/// Rounds that count for nothing.
const WARM_UP: usize = 3;
/// Short, so that few departures count at a time.
const GUARD: Duration = Duration::from_millis(2);
const MOST_TO_SCRIPT: f64 = 2.0;
const MOST_TO_ALONE: f64 = 0.1;

const STATE: &str = "TIME, GET, SET PX in a script";
const SHORT: &str = "acquire, 50 per ms";
const LONG: &str = "acquire, 10,000 per 10 ms";
const MANY: &str = "acquire, 10,000 per 10 ms, 64 at once";

/// Measures the cost of a permit beside that of less.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

/// What a block of calls cost, per call.
#[derive(Clone, Copy)]
struct Block {
    time: f64,
    command: f64,
    cpu: f64,
    received: f64,
    sent: f64,
}

/// A block of one caller and one of many.
type Round = [Block; 2];

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    until_asked_to_end(run(Output::new(cli.options))).await
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let mut connection = server.connect().await?;
    let cases = cases(&server).await?;
    Progress::new(1).begin(&format!("{} cases in turns", cases.len()));
    let mut rounds = Vec::new();
    let since = Instant::now();
    while rounds.len() < 2 * WARM_UP || since.elapsed() < output.options().time(TIME) {
        let mut round = Vec::new();
        for case in &cases {
            let alone = block(&mut connection, case, 1).await?;
            round.push([alone, block(&mut connection, case, CALLERS).await?]);
        }
        rounds.push(round);
    }
    let mut table = Table::new(
        "a call, beside the least that asks redis",
        &[
            "what",
            "us",
            "us in the command",
            "us of redis CPU",
            "bytes to redis",
            "bytes back",
            "us with 64 callers",
            "us of redis CPU with them",
        ],
    );
    let over = |name: &str, figure: &dyn Fn(&Round) -> f64| {
        let place = cases.iter().position(|case| case.name == name);
        let rounds = rounds[WARM_UP..].iter();
        median(
            rounds
                .map(|round| figure(&round[place.unwrap_or(0)]))
                .collect(),
        )
    };
    for &Case { name, .. } in &cases {
        table.row([
            Cell::text(name),
            Cell::Figure(over(name, &|[alone, _]| alone.time)),
            Cell::Ratio(over(name, &|[alone, _]| alone.command)),
            Cell::Ratio(over(name, &|[alone, _]| alone.cpu)),
            Cell::Figure(over(name, &|[alone, _]| alone.received)),
            Cell::Figure(over(name, &|[alone, _]| alone.sent)),
            Cell::Ratio(over(name, &|[_, many]| many.time)),
            Cell::Ratio(over(name, &|[_, many]| many.cpu)),
        ]);
    }
    output.table(&table);
    let time = |name| over(name, &|[alone, _]| alone.time);
    let claim = "time of a permit, to that of a script with TIME, GET and SET PX";
    output.at_most(claim, time(SHORT) / time(STATE), MOST_TO_SCRIPT);
    let command = |name| over(name, &|[alone, _]| alone.command);
    let claim = "time in redis of each of 64 requests, to that of one alone";
    let ratio = command(MANY) / CALLERS as f64 / command(LONG);
    output.at_most(claim, ratio, MOST_TO_ALONE);
    output.finish()
}

async fn cases(server: &RedisServer) -> anyhow::Result<Vec<Case>> {
    let (connection, store) = (server.connect().await?, server.store().await?);
    let mut get = redis::cmd("GET");
    get.arg("floor");
    let mut set = redis::cmd("SET");
    set.arg("floor")
        .arg(1_760_000_000_123_456_u64)
        .arg("PX")
        .arg(60_000);
    let pair = [get, set];
    // No caller reaches these limits, so all requests depart at once.
    let limiter = |limit, window, algorithm| {
        Limiter::builder()
            .store(store.clone())
            .quota(Quota::new(limit, window).algorithm(algorithm))
            .guard(GUARD)
            .build()
    };
    let window = Duration::from_millis(10);
    let gcra = limiter(10_000, window, Algorithm::Gcra { burst: 10_000 })?;
    let start = WindowStart::Clock;
    // At the end of a window, requests wait for the next one.
    let second = Duration::from_secs(1);
    let fixed = limiter(1_000_000, second, Algorithm::FixedWindow { start })?;
    let short = limiter(50, Duration::from_millis(1), Algorithm::SlidingLog)?;
    let long = limiter(10_000, window, Algorithm::SlidingLog)?;
    let script = async |name, text| Case::script(name, &connection, text).await;
    Ok(vec![
        Case::commands("PING", &["ping"], &connection, [redis::cmd("PING")]),
        Case::commands("GET, SET PX", &["get", "set"], &connection, pair),
        script("an empty script", "return 1").await?,
        script("TIME in a script", "return redis.call('TIME')[2]").await?,
        script("GET in a script", "return redis.call('GET', KEYS[1])").await?,
        script(
            "SET PX in a script",
            "redis.call('SET', KEYS[1], '1760000000123456', 'PX', ARGV[1]) return 1",
        )
        .await?,
        script(
            STATE,
            "local time = redis.call('TIME')
             local state = redis.call('GET', KEYS[1])
             redis.call('SET', KEYS[1], time[1] .. time[2], 'PX', ARGV[1])
             return state",
        )
        .await?,
        Case::acquire("acquire, GCRA", gcra, 1),
        Case::acquire("acquire, fixed window", fixed, 1),
        Case::acquire(SHORT, short, 1),
        Case::acquire(LONG, long.clone(), 1),
        Case::acquire(MANY, long, CALLERS),
    ])
}

async fn block(
    connection: &mut MultiplexedConnection,
    case: &Case,
    callers: usize,
) -> anyhow::Result<Block> {
    // What the asking for figures costs is in none of them.
    let first = Usage::read(connection).await?;
    let second = Usage::read(connection).await?;
    let since = Instant::now();
    if callers == 1 {
        for _ in 0..CALLS {
            case.ask().await?;
        }
    } else {
        let calls = stream::iter(0..CALLS).map(|_| case.ask());
        let calls = calls.buffer_unordered(callers);
        calls.try_for_each(|()| async { Ok(()) }).await?;
    }
    let time = since.elapsed();
    let usage = Usage::read(connection).await?.since(&second);
    let asking = second.since(&first);
    let per_call = |all: u64, asking: u64| all.saturating_sub(asking) as f64 / f64::from(CALLS);
    Ok(Block {
        time: time.as_secs_f64() * 1e6 / f64::from(CALLS),
        command: per_call(usage.micros(case.counted), 0),
        cpu: per_call(usage.cpu, asking.cpu),
        received: per_call(usage.received, asking.received),
        sent: per_call(usage.sent, asking.sent),
    })
}
