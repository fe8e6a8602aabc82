//! Several replicas, each with many callers that all start at once, under one limit in Redis.
//!
//! ```sh
//! cargo run --release --example replicas -- --window 1s --limit 200 --processes 3 --callers 2000
//! ```
//!
//! The replicas are operating system processes. They send requests with reqwest to an upstream that records each
//! arrival, so the result shows what an upstream sees. Connections are opened on demand, which delays the first
//! arrivals; the buffer has to allow for that.

mod terminated;
mod trial;

use anyhow::bail;
use clap::{Args, Parser, Subcommand};

use self::terminated::terminated;
use self::trial::{Replica, Setup};

/// Starts replicas that share one limit, and shows the most requests that arrived in any window.
///
/// Fails if more arrived than the limit allows, or if a request failed.
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
    /// Runs one replica, for the parent process
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
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    match cli.role {
        Some(Role::Replica(replica)) => replica.run(),
        None => run(&cli.options),
    }
}

/// Runs the parent. The processes that it starts end with it, also on an error or a signal.
#[tokio::main(flavor = "current_thread")]
async fn run(options: &Options) -> anyhow::Result<()> {
    let report = tokio::select! {
        measured = trial::run(&options.setup, |message| eprintln!("{message}")) => measured?,
        signal = tokio::signal::ctrl_c() => { signal?; bail!("interrupted") }
        signal = terminated() => { signal?; bail!("terminated") }
    };
    if options.json {
        println!("{}", report.json());
    } else {
        println!("{report}");
    }
    report.verdict()
}
