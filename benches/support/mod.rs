//! What the benchmarks share: a Redis of their own, the quotas, and how figures are shown.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "a library includes it as well, and each benchmark uses a part"
)]

mod output;
mod progress;
mod quantiles;
mod quotas;
mod redis_server;

use std::io;

use anyhow::bail;

pub use self::{
    output::{Cell, Options, Output, Table},
    progress::Progress,
    quantiles::{median, quantile},
    quotas::{algorithms, limiter},
    redis_server::{Info, RedisServer},
};

/// Runs until it is done or this process is asked to end; either way, servers that it holds end.
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
