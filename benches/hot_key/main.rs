//! Checks that the cost of a call on a hot key does not depend on the limit, from 10 to 1,000.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench hot_key                    # a table
//! cargo bench -p tower-throttle-benches --bench hot_key -- --json --check  # lines of JSON; fails if a bound is not met
//! ```
//!
//! One caller calls a limiter on a separate `redis-server`. Each algorithm is measured on four paths:
//!
//! | path | the log | the call |
//! | --- | --- | --- |
//! | granted | four fifths full, at most two departures short of full with a limit of 10 | [`try_acquire`] gets a permit |
//! | returned | the same | the same; the call also returns the departure of the previous one |
//! | refused | full | the store refuses [`try_acquire`] |
//! | peeked | full | [`peek`] |
//!
//! With spacing and leaky buckets, requests depart one by one. Their keys are unused on the path `granted`. They have
//! no path `returned`, because a returned departure time cannot be used again before it has passed. A log has at most
//! 1,000 entries, also with a larger limit.
//!
//! Windows are so long that nothing expires, and each block of calls returns its departures at the end. Figures are the
//! latency of a call, and its time in Redis (`usec` of `evalsha` in `INFO commandstats`). The limits run in turns, so
//! that other load on the machine affects all of them. Figures and ratios are medians over the rounds.
//!
//! Bound: with a limit of 1,000 a call costs at most 1.3 times as much as with a limit of 10, by both figures.
//!
//! [`try_acquire`]: tower_throttle::Limiter::try_acquire
//! [`peek`]: tower_throttle::Limiter::peek

mod hot;
mod round;

use std::time::Duration;

use self::hot::{Hot, Path, is_spaced};
use self::round::{Series, measure};
use tower_throttle_benches::support::{
    Cell, Output, Progress, RedisServer, Table, algorithms, until_asked_to_end,
};

const LIMITS: [u32; 3] = [10, 100, 1_000];
const PATHS: [Path; 4] = [Path::Granted, Path::Returned, Path::Refused, Path::Peeked];
const TIME: Duration = Duration::from_millis(1_500);
const MOST_RATIO: f64 = 1.3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    until_asked_to_end(run(Output::parse(
        "Measures the cost of a call on a hot key, by the limit",
    )))
    .await
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let mut connection = server.connect().await?;
    let store = server.store().await?;
    let mut progress = Progress::new(algorithms(1).len() * PATHS.len() - 2);
    for (place, (name, algorithm)) in algorithms(1).into_iter().enumerate() {
        let mut table = Table::new(
            "cost of a call on a hot key",
            &[
                "algorithm",
                "path",
                "limit",
                "us per call",
                "us in redis",
                "relative to limit 10",
                "in redis relative to limit 10",
                "share that departs",
            ],
        );
        for path in PATHS {
            if path == Path::Returned && is_spaced(algorithm) {
                continue;
            }
            progress.begin(&format!("{name}, {path}"));
            let hot = LIMITS.map(|limit| {
                let (_, algorithm) = algorithms(limit)[place];
                Hot::new(&store, algorithm, limit, path)
            });
            let mut hot = hot.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
            let time = output.options().time(TIME);
            let series = measure(&mut connection, &mut hot, time).await?;
            for (hot, series) in hot.iter().zip(&series) {
                table.row(row(name, hot, series));
                hot.judge()?;
            }
            if let Some(longest) = series.last() {
                let claim = |by| format!("{name}, {path}: limit 1,000 relative to limit 10, {by}");
                output.at_most(claim("time of a call"), longest.time_ratio, MOST_RATIO);
                output.at_most(claim("time in redis"), longest.redis_ratio, MOST_RATIO);
            }
        }
        output.table(&table);
    }
    output.finish()
}

fn row(name: &str, hot: &Hot, series: &Series) -> [Cell; 8] {
    [
        Cell::text(name),
        Cell::text(hot.path().to_string()),
        Cell::Count(hot.limit().into()),
        Cell::Figure(series.time),
        Cell::Figure(series.redis),
        Cell::Ratio(series.time_ratio),
        Cell::Ratio(series.redis_ratio),
        Cell::Ratio(hot.departed()),
    ]
}
