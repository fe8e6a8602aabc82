//! Measures the memory of state in Redis, beside common handwritten schemes.
//!
//! | table | content |
//! | --- | --- |
//! | users | many users with a quota of 2 per 30 s, after two requests of each |
//! | logs | full logs of 1,000 and 10,000 requests |
//!
//! A limiter creates its state on a separate `redis-server`, and the schemes create theirs with their own commands.
//! Memory is the length of the values, and the `MEMORY USAGE` of the keys. Choices favour the schemes: members and scores are integers,
//! which Redis stores in the fewest bytes.

mod gauge;
mod logs;
mod users;

use redis::Cmd;
use tower_throttle_benches::support::{self, Output, RedisServer};

use self::gauge::Gauge;

/// An arbitrary time, in microseconds.
const ORIGIN: u64 = 1_760_000_000_123_456;

fn main() -> anyhow::Result<()> {
    support::measure("Measures the memory of state in Redis", run)
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let store = server.store().await?;
    let mut gauge = Gauge::new(server.connect().await?);
    users::measure(&mut gauge, &store, &mut output).await?;
    logs::measure(&mut gauge, &store, &mut output).await?;
    output.finish()
}

fn command(words: &[&str], numbers: &[u64]) -> Cmd {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]).arg(numbers);
    command
}
