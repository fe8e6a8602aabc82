//! What a reservation on a hot key costs, for limits from 10 to 10,000: it must not depend on them.
//!
//! ```sh
//! cargo bench --bench hot_key                    # a table
//! cargo bench --bench hot_key -- --json --check  # lines of JSON; fails if a bound is not met
//! ```
//!
//! One caller on one connection calls [`Store::reserve`](tower_throttle::store::Store::reserve) of a
//! `RedisStore` on a `redis-server` of the benchmark's own. Each algorithm is measured on five paths:
//!
//! | path | the log | the call |
//! | --- | --- | --- |
//! | granted | nearly full: records leave as fast as new ones come | departs at once |
//! | forfeited | nearly full | is for two, of which a second call gives the first back |
//! | refused | full | may not wait, so nothing is recorded |
//! | ahead | full | gets a slot behind up to 50 others that wait |
//! | 64 ahead | full | gets 64 slots behind up to 400 others that wait |
//!
//! What went ahead is given back after each block of calls, so the line stays that short. Figures are
//! the time of a call as the caller sees it, and the time that Redis spends on it (`usec` of `evalsha`
//! in `INFO commandstats`). Blocks of the four limits take turns, so what else goes on in the machine
//! meets all alike, and figures are medians over the rounds: those of ratios, too.
//!
//! Bound: with a limit of 10,000 a call costs at most 1.3 times what it costs with one of 10, by both
//! figures. And what the sliding log granted is judged: never more than the limit in any window.

mod hot;
mod round;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use clap::Parser;
use tower_throttle::Algorithm;

use self::hot::{Hot, Path};
use self::round::{Series, call_time, measure};
use self::support::{
    Cell, Options, Output, Progress, RedisServer, Table, algorithms, until_asked_to_end,
};

const LIMITS: [u32; 4] = [10, 100, 1_000, 10_000];
const PATHS: [Path; 5] = [
    Path::Granted,
    Path::Forfeited,
    Path::Refused,
    Path::Ahead(1),
    Path::Ahead(64),
];
const MOST_RATIO: f64 = 1.3;

/// Measures what a reservation on a hot key costs, by the limit.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    until_asked_to_end(run(Output::new(cli.options))).await
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let mut connection = server.connect().await?;
    let store = server.store().await?;
    let pace = call_time(&store).await?;
    eprintln!("one call takes {pace:?}");
    let mut progress = Progress::new(algorithms(1).len() * PATHS.len());
    for (place, (name, _)) in algorithms(1).into_iter().enumerate() {
        let mut table = Table::new(
            "cost of a call on a hot key",
            &[
                "algorithm",
                "path",
                "limit",
                "us per call",
                "us in redis",
                "to limit 10",
                "in redis to limit 10",
                "departs at once",
            ],
        );
        for path in PATHS {
            progress.begin(&format!("{name}, {path}"));
            let hot = LIMITS.map(|limit| {
                let (_, algorithm) = algorithms(limit)[place];
                Hot::new(&store, algorithm, limit, path, pace)
            });
            let mut hot = hot.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
            let time = match hot[0].algorithm() {
                Algorithm::SlidingLog => Duration::from_millis(2_500),
                _ => Duration::from_millis(600),
            };
            let time = output.options().time(time);
            let series = measure(&mut connection, &mut hot, time).await?;
            for (hot, series) in hot.iter().zip(&series) {
                table.row(row(name, hot, series));
                hot.judge()?;
            }
            if let Some(longest) = series.last() {
                let claim = |by| format!("{name}, {path}: limit 10,000 to limit 10, {by}");
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
        Cell::Ratio(hot.at_once()),
    ]
}
