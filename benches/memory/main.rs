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

mod logs;
mod users;

use redis::{Cmd, Pipeline};
use support::redis_server::RedisServer;
use tower_throttle_benches::measure;

/// An arbitrary time, in microseconds.
const ORIGIN: u64 = 1_760_000_000_123_456;

fn main() -> anyhow::Result<()> {
    measure("Measures the memory of state in Redis", 0, async |output| {
        let server = RedisServer::start();
        users::measure(&server, output).await?;
        logs::measure(&server, output).await
    })
}

fn command(words: &[&str], numbers: &[u64]) -> Cmd {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]).arg(numbers);
    command
}

/// Sends commands and ignores their results.
fn send(server: &RedisServer, commands: impl IntoIterator<Item = Cmd>) -> anyhow::Result<()> {
    let mut batch = Pipeline::new();
    for command in commands {
        batch.add_command(command).ignore();
    }
    Ok(batch.exec(&mut server.client().get_connection()?)?)
}

/// The mean result of a command about these keys: the names of the keys follow its first words.
fn mean(server: &RedisServer, words: &[&str], names: &[String], more: &[&str]) -> f64 {
    let results = names.iter().map(|name| {
        let words = [words, &[name], more].concat();
        server.command::<u64>(&words) as f64
    });
    results.sum::<f64>() / names.len() as f64
}

/// Mean `MEMORY USAGE` of these keys, without sampling.
fn usage(server: &RedisServer, names: &[String]) -> f64 {
    mean(server, &["MEMORY", "USAGE"], names, &["SAMPLES", "0"])
}

/// Mean length of the values of these keys, which are strings.
fn length(server: &RedisServer, names: &[String]) -> f64 {
    mean(server, &["STRLEN"], names, &[])
}
