//! Compares one busy key with limiters that call Redis for each request.
//!
//! The callers are tasks on one thread, which leaves a core for Redis. Limiters take turns in blocks of a fraction of a
//! second on a separate `redis-server`. Figures and ratios are medians over the rounds.
//!
//! | table | each caller | limit |
//! | --- | --- | --- |
//! | permits | acquires one permit after another | 100,000 per 10 ms, which no limiter reaches |
//! | decisions | asks again and again without waiting | 10, 1,000 or 10,000 per second, which all reach |
//!
//! The history of all departures through this crate is checked at the end.

mod decisions;
mod permits;

use support::redis_server::RedisServer;
use tower_throttle_benches::measure;

fn main() -> anyhow::Result<()> {
    measure(1, async |output| {
        let server = RedisServer::start();
        permits::measure(&server, output).await?;
        decisions::measure(&server, output).await
    })
}
