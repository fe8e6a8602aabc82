//! Measures how the cost of a permit grows with callers, processes, keys and waiters.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench growth                        # tables, in about 90 s
//! cargo bench -p tower-throttle-benches --bench growth -- waiters             # one curve
//! cargo bench -p tower-throttle-benches --bench growth -- --quick             # a tenth of the time
//! cargo bench -p tower-throttle-benches --bench growth -- --check             # fails if a bound is not met
//! ```
//!
//! Each curve uses a separate `redis-server`. A permit is one [`Limiter::acquire`]. Its CPU time in Redis is that of
//! `evalsha` in `INFO commandstats`, or all CPU time of the server. Figures are medians over rounds; callers and
//! processes run once, for some seconds.
//!
//! | curve | parameter | figures | bounds |
//! | --- | --- | --- | --- |
//! | callers | 1 to 512 callers in one process, on one key with 100,000 per 10 ms, a limit that they do not reach | permits per second; user, kernel and Redis CPU time per permit | with 512 callers, a permit takes at most a tenth of the time and Redis CPU time of one with a single caller |
//! | processes | 1 to 8 processes with 64 callers each, on that key | total permits per second, Redis calls and CPU time per permit | 8 processes make at most 1.5 times as many calls per permit as one; never more departures in any window than the limit |
//! | keys | 1 to 1,000,000 keys, random for each permit, 64 callers | time per permit: 1 over the rate of all callers | a permit with a million keys costs at most twice as much as with a hundred |
//! | waiters | 1 to 100,000 requests that wait for one key | time until all wait; time from the first departure to the last, if all may depart at the same time | per request, waking 100,000 costs at most 1.5 times as much as waking 1,000, and enqueuing them 2.5 times |
//!
//! The bounds are ratios, so they do not depend on the machine. They allow for cache misses with a million keys and a
//! hundred thousand tasks.
//!
//! Within a process, callers of one key share a call, and keys share calls with each other. With 64 callers, a permit
//! costs about a 32nd of a call, because half of them call while the others depart. This does not change with the
//! number of processes. A single key is cheapest, because all callers also share its state. So the bound on keys
//! compares with a hundred keys.
//!
//! [`Limiter::acquire`]: tower_throttle::Limiter::acquire

mod callers;
mod hot;
mod keys;
mod processes;
mod replica;
mod usage;
mod waiters;

use clap::{Parser, Subcommand, ValueEnum};

use self::replica::Replica;
use tower_throttle_benches::support::{Options, Output, Progress, until_asked_to_end};

/// Measures how the cost of a permit grows.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    /// The curves to measure [default: all]
    curves: Vec<Curve>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Role {
    /// Runs one process, for the parent process
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
    for curve in cli.curves {
        let (output, progress) = (&mut output, &mut progress);
        match curve {
            Curve::Callers => callers::measure(output, progress).await?,
            Curve::Processes => processes::measure(output, progress).await?,
            Curve::Keys => keys::measure(output, progress).await?,
            Curve::Waiters => waiters::measure(output, progress).await?,
        }
    }
    output.finish()
}

impl Curve {
    fn parts(self) -> usize {
        match self {
            Self::Callers => callers::CALLERS.len(),
            Self::Processes => processes::PROCESSES.len(),
            Self::Keys => keys::KEYS.len(),
            // All numbers of waiters run in turns.
            Self::Waiters => 1,
        }
    }
}
