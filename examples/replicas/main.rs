//! Several replicas, each with many callers that all start at once, under one limit in Redis.
//!
//! ```sh
//! cargo run --release --example replicas -- --window 1s --limit 200 --processes 3 --callers 2000
//! ```
//!
//! The replicas are operating system processes. They send through reqwest to an upstream that
//! stamps each arrival, so what is shown is what an upstream sees, and not what the limiter
//! believes. Connections are made as they are needed, not beforehand: that blurs the first
//! arrivals, as it would anywhere, and the buffer has to make up for it.

mod command_stats;
mod fleet;
mod plot;
mod redis_server;
mod replica;
mod report;
mod upstream;

use std::io;
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::builder::RangedI64ValueParser;
use clap::{Args, Parser, Subcommand};

use self::command_stats::CommandStats;
use self::fleet::Fleet;
use self::redis_server::RedisServer;
use self::replica::Replica;
use self::report::Report;
use self::upstream::Upstream;

/// Starts replicas that share one limit, and shows how many requests arrived in any window.
///
/// Ends with an error if more arrived than the limit allows, or if a request failed.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Role {
    /// Plays one replica, for the process that started it
    #[command(hide = true)]
    Replica(Replica),
}

#[derive(Args)]
struct Options {
    #[command(flatten)]
    limit: Limit,
    /// How many replicas, each a process of its own
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = count(1..=100))]
    processes: u32,
    /// How many callers per replica, all of which start at once
    #[arg(long, value_name = "COUNT", default_value_t = 2000, value_parser = count(1..))]
    callers: u32,
    /// How many requests in all, split evenly among the replicas and their callers
    #[arg(long, value_name = "COUNT", default_value_t = 6000, value_parser = count(2..))]
    requests: u32,
    /// The Redis to use; its commands are counted, so nobody else should use it meanwhile [default:
    /// a redis-server of its own, from $REDIS_SERVER or the PATH]
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
    /// Draw the arrivals and the count in the window, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// What all replicas agree on.
#[derive(Args, Clone)]
struct Limit {
    /// How long the window is, such as 500ms, 1s or 2m
    #[arg(long, default_value = "1s", value_parser = duration)]
    window: Duration,
    /// How many requests any window may hold
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = count(1..))]
    limit: u32,
    /// How much further apart requests are kept, for the jitter between departure and arrival
    #[arg(long, value_name = "DURATION", default_value = "60ms", value_parser = duration)]
    buffer: Duration,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    match cli.role {
        Some(Role::Replica(replica)) => replica.run(),
        None => run(&cli.options),
    }
}

/// Plays the parent: whatever it started ends with it, also on an error or a signal.
#[tokio::main(flavor = "current_thread")]
async fn run(options: &Options) -> anyhow::Result<()> {
    let report = tokio::select! {
        report = measure(options) => report?,
        asked = tokio::signal::ctrl_c() => { asked?; bail!("interrupted") }
        asked = terminated() => { asked?; bail!("terminated") }
    };
    if options.json {
        println!("{}", report.json());
    } else {
        println!("{report}");
    }
    report.verdict()
}

async fn measure(options: &Options) -> anyhow::Result<Report> {
    // Declared first, so that it ends last.
    let (_own_server, url) = match &options.redis {
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
    eprintln!(
        "starting {} processes with {} callers each",
        options.processes, options.callers
    );
    let mut fleet = Fleet::start(options, &url, &upstream.url()).await?;
    eprintln!("all callers start now");
    fleet.release().await?;
    let failed = {
        let progress = upstream.show_progress(options.requests);
        tokio::select! {
            failed = fleet.finish() => failed?,
            never = progress => match never {},
        }
    };
    let calls = stats.read().await?.since(&before);

    let arrivals = upstream.arrivals();
    if let Some(file) = &options.plot {
        plot::draw(file, &options.limit, &arrivals)
            .with_context(|| format!("cannot draw {}", file.display()))?;
        eprintln!("drew {}", file.display());
    }
    Ok(Report::new(options, &arrivals, calls, failed))
}

/// Resolves when this process is asked to end.
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
