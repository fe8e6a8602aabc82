//! Runs replicas under one limit, and records the arrivals at their upstream: [`run`].

mod command_stats;
mod fleet;
mod redis_server;
mod replica;
mod report;
mod upstream;

use std::ops::RangeBounds;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::RangedI64ValueParser;

use self::command_stats::CommandStats;
use self::fleet::Fleet;
use self::redis_server::RedisServer;
use self::upstream::Upstream;
pub(crate) use self::{replica::Replica, report::Report};

/// The setup of a run.
#[derive(Args, Clone)]
pub(crate) struct Setup {
    #[command(flatten)]
    pub(crate) limit: Limit,
    /// Number of replicas, each a separate process
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = count(1..=100))]
    pub(crate) processes: u32,
    /// Number of callers per replica; all start at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 2000, value_parser = count(1..))]
    pub(crate) callers: u32,
    /// Total number of requests, split evenly among replicas and callers
    #[arg(long, value_name = "COUNT", default_value_t = 6000, value_parser = count(2..))]
    pub(crate) requests: u32,
    /// The Redis to use. Its commands are counted, so it must have no other clients [default: a new
    /// redis-server, from $REDIS_SERVER or the PATH]
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,
}

/// The settings that all replicas share.
#[derive(Args, Clone)]
pub(crate) struct Limit {
    /// Length of the window, such as 500ms, 1s or 2m
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub(crate) window: Duration,
    /// Maximum number of requests in any window
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = count(1..))]
    pub(crate) limit: u32,
    /// Margin added to the window, for jitter between departure and arrival
    #[arg(long, value_name = "DURATION", default_value = "60ms", value_parser = duration)]
    pub(crate) buffer: Duration,
}

/// Starts Redis, an upstream and the replicas, and reports progress with `log`.
pub(crate) async fn run(setup: &Setup, log: impl Fn(&str)) -> anyhow::Result<Report> {
    // Declared first, so that it ends last.
    let (_own_server, url) = match &setup.redis {
        Some(url) => (None, url.clone()),
        None => {
            let server = RedisServer::start().await?;
            let url = server.url();
            (Some(server), url)
        }
    };
    let upstream = Upstream::start().await?;
    let mut stats = CommandStats::connect(&url).await?;

    let before = stats.read().await?;
    let Setup {
        processes, callers, ..
    } = setup;
    log(&format!(
        "starting {processes} processes with {callers} callers each"
    ));
    let mut fleet = Fleet::start(setup, &url, &upstream.url()).await?;
    log("all callers start now");
    fleet.release().await?;
    let failed = {
        let progress = upstream.show_progress(setup.requests, &log);
        tokio::select! {
            failed = fleet.finish() => failed?,
            never = progress => match never {},
        }
    };
    let calls = stats.read().await?.since(&before);
    Ok(Report::new(setup, &upstream.arrivals(), calls, failed))
}

fn count(range: impl RangeBounds<i64>) -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(range)
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    let (digits, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let count: u64 = digits
        .parse()
        .context("must be a whole number and a unit, such as 60ms")?;
    let micros = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        _ => bail!("the unit must be us, ms, s, m or h"),
    };
    Ok(Duration::from_micros(
        count.checked_mul(micros).context("too long")?,
    ))
}
