//! Replicas under one limit, and what their upstream saw of them: [`run`].

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
use tower_throttle::Quota;

use self::command_stats::CommandStats;
use self::fleet::Fleet;
use self::redis_server::RedisServer;
use self::upstream::Upstream;
pub(crate) use self::{replica::Replica, report::Report, upstream::Arrival};

/// What is tried.
#[derive(Args, Clone)]
pub(crate) struct Setup {
    #[command(flatten)]
    pub(crate) limit: Limit,
    /// How many replicas, each a process of its own
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = count(1..=100))]
    pub(crate) processes: u32,
    /// How many callers per replica, all of which start at once
    #[arg(long, value_name = "COUNT", default_value_t = 2000, value_parser = count(1..))]
    pub(crate) callers: u32,
    /// How many requests in all, split evenly among the replicas and their callers
    #[arg(long, value_name = "COUNT", default_value_t = 6000, value_parser = count(2..))]
    pub(crate) requests: u32,
    /// The Redis to use; its commands are counted, so nobody else should use it meanwhile [default:
    /// a redis-server of its own, from $REDIS_SERVER or the PATH]
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,
}

/// What all replicas agree on.
#[derive(Args, Clone)]
pub(crate) struct Limit {
    /// How long the window is, such as 500ms, 1s or 2m
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub(crate) window: Duration,
    /// How many requests any window may hold
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = count(1..))]
    pub(crate) limit: u32,
    /// How much further apart requests are kept, for the jitter between departure and arrival
    #[arg(long, value_name = "DURATION", default_value = "60ms", value_parser = duration)]
    pub(crate) buffer: Duration,
    /// What replicas go by, if not by the limit that they are judged by
    #[arg(long, hide = true)]
    pub(crate) quota: Option<Quota>,
}

/// Starts the replicas, and an upstream and a Redis for them, and says how it goes; yields what came of
/// it, and the arrivals.
pub(crate) async fn run(
    setup: &Setup,
    say: impl Fn(&str),
) -> anyhow::Result<(Report, Vec<Arrival>)> {
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
    say(&format!(
        "starting {processes} processes with {callers} callers each"
    ));
    let mut fleet = Fleet::start(setup, &url, &upstream.url()).await?;
    say("all callers start now");
    fleet.release().await?;
    let failed = {
        let progress = upstream.show_progress(setup.requests, &say);
        tokio::select! {
            failed = fleet.finish() => failed?,
            never = progress => match never {},
        }
    };
    let calls = stats.read().await?.since(&before);
    let arrivals = upstream.arrivals();
    Ok((Report::new(setup, &arrivals, calls, failed), arrivals))
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
        .context("a whole number and a unit, such as 60ms")?;
    let micros = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        _ => bail!("the unit is one of us, ms, s, m and h"),
    };
    Ok(Duration::from_micros(
        count.checked_mul(micros).context("too long")?,
    ))
}
