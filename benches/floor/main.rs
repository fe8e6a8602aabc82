//! Compares the cost of a permit with the minimum cost of a call to Redis.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench floor                    # a table
//! cargo bench -p tower-throttle-benches --bench floor -- --json --check  # lines of JSON; fails if a bound is not met
//! ```
//!
//! | call | content |
//! | --- | --- |
//! | PING | one round trip |
//! | GET, SET PX | two commands in one round trip; a limiter cannot use this, because other clients may run commands in between |
//! | an empty script | the minimum cost of a script |
//! | TIME, GET, SET PX, in scripts | a script that gets the time, reads state, or writes state with an expiry; and one that does all three, as a limiter must |
//! | acquire | `Limiter::acquire` without waiting: with GCRA, fixed windows, short and long sliding windows, for one request and for 64 simultaneous ones |
//!
//! All calls use one connection to a separate `redis-server`. Figures are microseconds and bytes per call:
//!
//! - latency for one caller that makes one call after another;
//! - time of the command, `usec` in `INFO commandstats`; for a script, including the commands that it runs;
//! - CPU time of the server with one caller, including reading, parsing and writing;
//! - bytes in each direction, by `INFO stats`, which counts TCP payload;
//! - with 64 callers: 1 over the rate of all calls, and the CPU time of the server.
//!
//! Cases run in turns, in blocks. Figures are medians over the rounds.
//!
//! With 64 callers, each uses its own key, so that they do not share calls.
//!
//! Bounds: for one caller, a permit takes at most twice as long as a script with only TIME, GET and SET PX. For each of
//! 64 requests in one call, the command takes at most a tenth of the time for one request.

mod case;
#[allow(dead_code, reason = "it also counts calls")]
#[path = "../growth/usage.rs"]
mod usage;

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::aio::MultiplexedConnection;
use tower_throttle::{Algorithm, Limiter, Quota, WindowStart};

use self::case::Case;
use self::usage::Usage;
use tower_throttle_benches::support::{
    Cell, Output, Progress, RedisServer, Table, median, until_asked_to_end,
};

const TIME: Duration = Duration::from_secs(15);
/// Number of calls in a block.
const CALLS: u32 = 256;
/// Number of callers in the concurrent case.
const CALLERS: usize = 64;
/// Warm-up rounds, which are not counted.
const WARM_UP: usize = 3;
/// Short, so that the log stays short.
const GUARD: Duration = Duration::from_millis(2);
const MOST_TO_SCRIPT: f64 = 2.0;
const MOST_TO_ALONE: f64 = 0.1;

const STATE: &str = "TIME, GET, SET PX in a script";
const SHORT: &str = "acquire, 50 per ms";
const LONG: &str = "acquire, 10,000 per 10 ms";
const MANY: &str = "acquire, 10,000 per 10 ms, 64 at once";

/// The cost of a block of calls, per call.
#[derive(Clone, Copy)]
struct Block {
    time: f64,
    command: f64,
    cpu: f64,
    received: f64,
    sent: f64,
}

/// A block with one caller and a block with many.
type Round = [Block; 2];

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    until_asked_to_end(run(Output::parse(
        "Compares the cost of a permit with simpler calls to Redis",
    )))
    .await
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
        "cost of a call",
        &[
            "what",
            "us",
            "us in the command",
            "us of redis CPU",
            "bytes to redis",
            "bytes back",
            "us with 64 callers",
            "us of redis CPU with 64 callers",
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
    let claim = "time of a permit, relative to a script with TIME, GET and SET PX";
    output.at_most(claim, time(SHORT) / time(STATE), MOST_TO_SCRIPT);
    let command = |name| over(name, &|[alone, _]| alone.command);
    let claim = "time in redis of each of 64 requests, relative to a single one";
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
    // No caller reaches these limits, so requests do not wait.
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
    // The cost of the `INFO` calls is not in the figures.
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
