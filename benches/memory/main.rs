//! Measures the memory of state in Redis, in comparison with common handwritten schemes.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench memory                    # tables
//! cargo bench -p tower-throttle-benches --bench memory -- users logs      # only some of users, logs and million
//! cargo bench -p tower-throttle-benches --bench memory -- --json --check  # lines of JSON; fails if a bound is not met
//! ```
//!
//! [`Store::reserve`](tower_throttle::store::Store::reserve) of a `RedisStore` creates the state on a separate
//! `redis-server`. The schemes create theirs with their own commands. Memory is measured twice: by `MEMORY USAGE`, and
//! by the growth of `used_memory` over many keys, which includes tables and expiry.
//!
//! | part | content | bound |
//! | --- | --- | --- |
//! | users | 100,000 users with a quota of 2 per 30 s, after one request each and after two | after two requests, a sliding log takes no more than a hash with a field per second, and sliding buckets at most 1% more; GCRA takes no more than a plain number with the same key |
//! | logs | long logs: full, after some windows, and with half as many requests waiting | 10 bytes per logged request |
//! | million | a million users that expire | no key is left, and no more than 1 MB; loaded within 60 s |
//!
//! Schemes are measured with plain key names, `throttle:123456`, and with the names of this crate. In the hash, two
//! requests within one second take as much as one.

mod gauge;
mod logs;
mod million;
mod schemes;
mod users;

use clap::{Parser, ValueEnum};

use self::gauge::Gauge;
use tower_throttle_benches::support::{Options, Output, RedisServer, until_asked_to_end};

/// Measures the memory of state in Redis.
#[derive(Parser)]
struct Cli {
    /// The parts to measure [default: all]
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
        // Each part uses a new server, so that it does not measure leftovers of others.
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
