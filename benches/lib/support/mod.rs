//! Support code of all benchmarks: a Redis server, and output.

mod output;
mod progress;
mod quantiles;
mod redis_server;

use std::io;

use anyhow::bail;

pub use self::{
    output::{Cell, Options, Output, Table},
    progress::Progress,
    quantiles::{median, quantile},
    redis_server::{Info, RedisServer},
};

/// Runs a benchmark with the options of the command line, on a runtime with one thread.
#[tokio::main(flavor = "current_thread")]
pub async fn measure(
    about: &'static str,
    run: impl AsyncFnOnce(Output) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    until_asked_to_end(run(Output::parse(about))).await
}

/// Runs a future until it completes or the process receives a signal. Servers that the future owns end in both cases.
pub async fn until_asked_to_end(
    measuring: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::select! {
        done = measuring => done,
        asked = tokio::signal::ctrl_c() => { asked?; bail!("interrupted") }
        asked = terminated() => { asked?; bail!("terminated") }
    }
}

#[cfg(unix)]
async fn terminated() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::terminate())?.recv().await;
    Ok(())
}

#[cfg(not(unix))]
async fn terminated() -> io::Result<()> {
    std::future::pending().await
}
