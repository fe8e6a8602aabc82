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

use tower_throttle_benches::support::{Output, RedisServer, until_asked_to_end};
use tower_throttle_benches::traffic::Meter;

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    until_asked_to_end(run(Output::parse(
        "Compares one busy key with other limiters",
    )))
    .await
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let mut meter = Meter::new(server.connect().await?);
    permits::measure(&server, &mut meter, &mut output).await?;
    decisions::measure(&server, &mut output).await?;
    output.finish()
}
