//! How the cost grows, itself against itself: with callers, processes, keys and waiters.
//!
//! ```sh
//! cargo bench --bench growth                        # tables, in about 90 s
//! cargo bench --bench growth -- waiters             # one curve
//! cargo bench --bench growth -- --quick             # a tenth of the time, for a first look
//! cargo bench --bench growth -- --check             # fails if a bound is not met
//! cargo bench --bench growth -- --plot src/docs/plots
//! ```
//!
//! Each curve has a `redis-server` of its own. A permit is one [`Limiter::acquire`]; its CPU in Redis is
//! what `INFO commandstats` says of `evalsha`, or all of what the server used. Figures are medians over
//! rounds, but those of callers and processes, who run for some seconds.
//!
//! | curve | what grows | what is measured | bounds |
//! | --- | --- | --- | --- |
//! | callers | 1 to 512 callers in one process, on one key with 100,000 per 10 ms, which nobody reaches | permits per second; the CPU of the process, of the kernel for it, and of Redis, per permit | a permit of 512 takes at most a tenth of the time and of the CPU in Redis that one of a single caller takes |
//! | processes | 1 to 8 processes with 64 callers each, on that key | permits per second in all, Redis calls and CPU per permit | 8 processes make at most 1.5 times as many calls per permit as one; never more than the limit in any window, over all processes |
//! | keys | 1 to 1,000,000 keys, from which 64 callers pick one at random | time per permit, as 1 over the rate of all callers | a million cost at most twice what a hundred cost |
//! | waiters | 1 to 100,000 requests that wait for one key | the time until all wait; that from the first departure to the last, where all may depart at once | per request, 100,000 cost at most 1.5 times what 1,000 cost to wake up, and 2.5 times until all wait |
//!
//! The bounds are ratios, so they say nothing about the machine. They leave room for what no scheme can
//! help: that a million keys and a hundred thousand tasks do not fit into caches.
//!
//! Within a process, callers of one key share a call, and keys share calls with each other. So a permit
//! costs a 32nd of a call where 64 callers are at work, as one half of them asks while the other departs:
//! in each of eight processes as in one, since each has as many callers. A single key is as cheap as
//! can be, as all that share a call share its state, too: that is why keys are compared from a hundred on.
//!
//! [`Limiter::acquire`]: tower_throttle::Limiter::acquire

mod callers;
#[path = "../../examples/algorithms/data_uris.rs"]
mod data_uris;
mod hot;
mod keys;
mod plot;
mod processes;
mod replica;
#[path = "../support/mod.rs"]
mod support;
mod usage;
mod waiters;

use std::fs;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use self::replica::Replica;
use self::support::{Options, Output, Progress, until_asked_to_end};

/// Measures how the cost grows.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    /// What to measure [default: all]
    curves: Vec<Curve>,
    /// Draw the curves into this folder, as SVG, and write the links with which rustdoc shows them
    #[arg(long, value_name = "FOLDER")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Role {
    /// Plays one process, for the one that started it
    #[command(hide = true)]
    Replica(Replica),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Curve {
    Callers,
    Processes,
    Keys,
    Waiters,
}

fn main() -> anyhow::Result<()> {
    let mut cli = Cli::parse();
    match cli.role.take() {
        Some(Role::Replica(replica)) => replica.run(),
        None => run(cli),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(mut cli: Cli) -> anyhow::Result<()> {
    if cli.curves.is_empty() {
        cli.curves = Curve::value_variants().to_vec();
    }
    until_asked_to_end(measure(cli)).await
}

async fn measure(cli: Cli) -> anyhow::Result<()> {
    let mut output = Output::new(cli.options);
    let mut progress = Progress::new(cli.curves.iter().map(|curve| curve.parts()).sum());
    let mut charts = Vec::new();
    for curve in cli.curves {
        let (output, progress) = (&mut output, &mut progress);
        charts.push(match curve {
            Curve::Callers => callers::measure(output, progress).await?,
            Curve::Processes => processes::measure(output, progress).await?,
            Curve::Keys => keys::measure(output, progress).await?,
            Curve::Waiters => waiters::measure(output, progress).await?,
        });
    }
    if let Some(folder) = &cli.plot {
        fs::create_dir_all(folder)?;
        charts.iter().try_for_each(|chart| chart.write(folder))?;
        plot::write_data_uris(folder)?;
    }
    output.finish()
}

impl Curve {
    fn parts(self) -> usize {
        match self {
            Self::Callers => callers::CALLERS.len(),
            Self::Processes => processes::PROCESSES.len(),
            Self::Keys => keys::KEYS.len(),
            // All in turns.
            Self::Waiters => 1,
        }
    }
}
