//! Support code of the benchmarks: the peers, callers that generate load, rounds in which contestants take turns,
//! departures that are checked, and counters of Redis.
//!
//! `cargo bench -p tower-throttle-benches --bench NAME` runs one benchmark, and `scripts/bench` all of them. Options follow
//! `--`: `--quick` takes a tenth of the time.

mod contestant;
mod departures;
mod load;
mod output;
mod peers;
mod redis;
mod rounds;

use clap::Parser as _;
use tokio::runtime::Builder;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

pub use self::contestant::{Contestant, Recorded};
pub use self::departures::{Departures, fill};
pub use self::load::{Load, load};
pub use self::output::{Options, Output, Table, count, figure, ratio, text};
pub use self::peers::{Peer, governor, tower_governor};
pub use self::redis::{Meter, Script, Traffic, connect, store};
pub use self::rounds::{Rounds, median, quantile, turns};
// Most benchmarks need these, too.
pub use std::sync::Arc;
pub use std::time::{Duration, Instant};

pub use anyhow::{bail, ensure};
pub use support::redis_server::RedisServer;
pub use tower_throttle::key::Key;
pub use tower_throttle::{Algorithm, Limiter, Quota, WindowStart};

/// Runs a benchmark with the options of the command line, on this thread and so many others, until the end or a signal. Its
/// servers end in both cases.
pub fn measure(
    workers: usize,
    run: impl AsyncFnOnce(&mut Output) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut output = Output::new(Options::parse());
    let mut runtime = match workers {
        0 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(workers.max(1)).enable_all();
    let runtime = runtime.build()?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            done = run(&mut output) => done,
            asked = ctrl_c() => { asked?; bail!("interrupted") }
            _ = terminated.recv() => bail!("terminated"),
        }
    })?;
    output.finish();
    Ok(())
}
