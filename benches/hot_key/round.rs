//! Measures all limits in turns: [`measure`].

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use crate::hot::Hot;
use tower_throttle_benches::support::{Info, median};

/// Warm-up rounds, which are not counted.
const WARM_UP: usize = 3;

/// Medians over the rounds, in microseconds per call, and medians of the ratios to the first limit.
pub(crate) struct Series {
    pub(crate) time: f64,
    pub(crate) redis: f64,
    pub(crate) time_ratio: f64,
    pub(crate) redis_ratio: f64,
}

/// A block of calls, in microseconds per call.
#[derive(Clone, Copy)]
struct Block {
    time: f64,
    redis: f64,
}

/// Runs all limits in turns, for this time.
pub(crate) async fn measure(
    connection: &mut MultiplexedConnection,
    all: &mut [Hot],
    time: Duration,
) -> anyhow::Result<Vec<Series>> {
    redis::cmd("FLUSHALL").exec_async(connection).await?;
    for hot in &mut *all {
        hot.fill().await?;
    }
    let mut rounds = Vec::new();
    let since = Instant::now();
    while rounds.len() < 2 * WARM_UP || since.elapsed() < time {
        let mut round = vec![None; all.len()];
        for turn in 0..all.len() {
            let place = (turn + rounds.len()) % all.len();
            round[place] = Some(time_block(connection, &mut all[place]).await?);
        }
        rounds.push(round.into_iter().flatten().collect::<Vec<_>>());
    }
    let over = |figure: &dyn Fn(&[Block]) -> f64| {
        median(
            rounds[WARM_UP..]
                .iter()
                .map(|round| figure(round))
                .collect(),
        )
    };
    let series = |place: usize| Series {
        time: over(&|round| round[place].time),
        redis: over(&|round| round[place].redis),
        time_ratio: over(&|round| round[place].time / round[0].time),
        redis_ratio: over(&|round| round[place].redis / round[0].redis),
    };
    Ok((0..all.len()).map(series).collect())
}

async fn time_block(
    connection: &mut MultiplexedConnection,
    hot: &mut Hot,
) -> anyhow::Result<Block> {
    let before = in_redis(connection).await?;
    let since = Instant::now();
    hot.block().await?;
    let time = since.elapsed();
    let redis = in_redis(connection).await? - before;
    hot.undo().await?;
    let calls = hot.calls() as f64;
    Ok(Block {
        time: time.as_secs_f64() * 1e6 / calls,
        redis: redis as f64 / calls,
    })
}

/// Time of scripts in Redis, in microseconds.
async fn in_redis(connection: &mut MultiplexedConnection) -> anyhow::Result<u64> {
    let stats = Info::read(connection, "commandstats").await?;
    stats.number("cmdstat_evalsha:usec")
}
