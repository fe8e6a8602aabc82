//! How much memory state takes in Redis, ours beside that of the schemes that people write by hand.
//!
//! ```sh
//! cargo bench --bench memory                    # tables
//! cargo bench --bench memory -- users logs      # only these parts, of users, logs and million
//! cargo bench --bench memory -- --json --check  # lines of JSON; fails if a bound is not met
//! ```
//!
//! State is made by [`Store::reserve`](tower_throttle::store::Store::reserve) of a `RedisStore` on a
//! `redis-server` of the benchmark's own, that of the schemes by the commands that they send. All of
//! it is measured twice: by `MEMORY USAGE`, and by how much `used_memory` grows over many keys, which
//! counts also what Redis keeps for the expiry of a key and for its tables.
//!
//! | part | what | bound |
//! | --- | --- | --- |
//! | users | 100,000 users with a quota of 2 per 30 s, after one request each and after two | after two, a sliding log takes no more than a hash with a field per second, sliding buckets 1% more at most; GCRA no more than a bare number of the same name |
//! | logs | long logs: full, after some windows, and with half as many again waiting | 10 bytes per logged request |
//! | million | a million users come and go | no key is left, and no more than 1 MB; loaded within 60 s |
//!
//! A scheme is measured with the names that its keys would have, `throttle:123456`, and with ours. In
//! the hash, two requests within one second take what one does.

mod gauge;
mod logs;
mod million;
mod schemes;
#[path = "../support/mod.rs"]
mod support;
mod users;

use clap::{Parser, ValueEnum};

use self::gauge::Gauge;
use self::support::{Options, Output, RedisServer, until_asked_to_end};

/// Measures how much memory state takes in Redis.
#[derive(Parser)]
struct Cli {
    /// What to measure [default: all]
    parts: Vec<Part>,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Users,
    Logs,
    Million,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let mut parts = cli.parts;
    if parts.is_empty() {
        parts = Part::value_variants().to_vec();
    }
    until_asked_to_end(run(&parts, Output::new(cli.options))).await
}

async fn run(parts: &[Part], mut output: Output) -> anyhow::Result<()> {
    for part in parts {
        // A server of its own: what one part leaves behind is no part of what the next measures.
        let server = RedisServer::start().await?;
        let store = server.store().await?;
        let mut gauge = Gauge::new(server.connect().await?);
        match part {
            Part::Users => users::measure(&mut gauge, &store, &mut output).await?,
            Part::Logs => logs::measure(&mut gauge, &store, &mut output).await?,
            Part::Million => million::measure(&mut gauge, &store, &mut output).await?,
        }
    }
    output.finish()
}
