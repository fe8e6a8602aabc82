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

mod plot;
mod trial;

use std::io;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use tower_throttle::Quota;

use self::trial::{Arrival, Replica, Report, Setup};

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
    setup: Setup,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
    /// Draw the arrivals and the count in the window, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Draw beside it what the same callers do under this quota, such as "50/s gcra burst=50"
    #[arg(long, value_name = "QUOTA", requires = "plot")]
    beside: Option<Quota>,
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
    let say = |said: &str| eprintln!("{said}");
    let (report, arrivals) = trial::run(&options.setup, say).await?;
    if let Some(file) = &options.plot {
        let other = match &options.beside {
            Some(quota) => Some((quota.to_string(), beside(&options.setup, quota).await?)),
            None => None,
        };
        let other = other.as_ref().map(|(by, arrivals)| (&**by, &**arrivals));
        plot::draw(file, &options.setup.limit, &arrivals, other)
            .with_context(|| format!("cannot draw {}", file.display()))?;
        eprintln!("drew {}", file.display());
    }
    Ok(report)
}

/// What arrives where something else is counted. That is not judged.
async fn beside(setup: &Setup, quota: &Quota) -> anyhow::Result<Vec<Arrival>> {
    let mut setup = setup.clone();
    setup.limit.quota = Some(*quota);
    eprintln!("and now by {quota}:");
    let (_, arrivals) = trial::run(&setup, |said| eprintln!("{said}")).await?;
    Ok(arrivals)
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
