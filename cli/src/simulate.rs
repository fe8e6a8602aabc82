//! `throttle simulate`: runs callers under quotas, in virtual time.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::Builder;
use tower_throttle::{Priority, Quota};

use self::figures::Figures;
use self::group::Group;
use self::load::{Cut, Load, MAX_REQUESTS};
use self::plan::Plan;
use crate::failure::{Failure, print_hint};
use crate::output::Output;
use crate::time::span;

mod figures;
mod group;
mod load;
mod plan;
mod start;

/// Maximum number of callers.
const MAX_CALLERS: u32 = 10_000;

/// Simulate many callers, and show when their requests depart
///
/// The simulation runs the real limiter on an embedded store in virtual time, without Redis. Each caller makes its
/// next request when the previous one has departed and its work has ended.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Quota, such as "10/s", "100/m gcra burst=20" or "20 concurrent"; repeat for joint quotas
    #[arg(
        long = "quota",
        value_name = "QUOTA",
        required_unless_present = "rules"
    )]
    quotas: Vec<Quota>,

    /// Rules file; one of its rules gives the quotas, the bounds and the cost
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quotas", "buffer", "guard", "max_wait", "max_waiting", "reserves"])]
    rules: Option<PathBuf>,

    /// Name of the rule to simulate [default: the last rule]
    #[arg(
        long,
        value_name = "NAME",
        requires = "rules",
        conflicts_with = "quotas"
    )]
    rule: Option<String>,

    /// Number of callers [default: the sum of `--priority` and `--share`, or 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CALLERS)))]
    callers: Option<u32>,

    /// Number of callers of a level, such as "high=5"; repeat for several; other callers are normal
    #[arg(long = "priority", value_name = "LEVEL=N", value_parser = Group::parse_priority)]
    priorities: Vec<Group>,

    /// Number of normal callers of a share, such as "tenant:3=10" with the weight 3; repeat for several
    #[arg(long = "share", value_name = "NAME:WEIGHT=N", value_parser = Group::parse_share)]
    shares: Vec<Group>,

    /// Part of the capacity reserved for a level, such as "low=0.1"; repeat for several
    #[arg(long = "reserve", value_name = "LEVEL=PART", value_parser = group::parse_reserve)]
    reserves: Vec<(Priority, f64)>,

    /// Number of processes that share the store; callers are spread over them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    replicas: u32,

    /// How long the callers make requests, in virtual time
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = within_a_year)]
    duration: Duration,

    /// Round trip to the store; 0s simulates an embedded store
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = within_a_year)]
    latency: Duration,

    /// How long the work of each request takes; the caller makes its next request after it
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = within_a_year)]
    work: Duration,

    /// Cost of each request [default: the cost in the rule, the default cost of the quotas, or 1]
    #[arg(long, value_name = "N")]
    cost: Option<NonZeroU32>,

    /// Margin added to each window, for jitter between departure and arrival
    #[arg(long, value_name = "TIME", value_parser = crate::time::parse)]
    buffer: Option<Duration>,

    /// How long after its granted time a request may depart
    #[arg(long, value_name = "TIME", value_parser = crate::time::parse)]
    guard: Option<Duration>,

    /// Maximum wait; a refused caller retries when its request could have departed
    #[arg(long, value_name = "TIME", value_parser = crate::time::parse)]
    max_wait: Option<Duration>,

    /// Maximum number of waiting requests per process; a refused caller retries after a second
    #[arg(long, value_name = "N")]
    max_waiting: Option<usize>,

    /// Maximum computing time; the simulation then stops early
    #[arg(long = "patience", value_name = "TIME", default_value = "10s", value_parser = within_a_year)]
    max_computing: Duration,
}

pub(crate) fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    if args.duration.is_zero() {
        return Err(Failure::usage("the duration must be greater than zero"));
    }
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| Failure::new("the async runtime cannot start").caused_by(&error))?;
    let figures = runtime.block_on(simulate(&args))?;
    output.show(&figures)?;
    match figures.cut {
        None => {}
        Some(Cut::Requests) => print_hint(format!(
            "the simulation stopped early, after {MAX_REQUESTS} requests"
        )),
        Some(Cut::ComputingTime) => print_hint(format!(
            "the simulation stopped early, after {} of computing; set `--patience` for a longer one",
            span(args.max_computing)
        )),
    }
    Ok(())
}

/// Parses a duration. Timers do not support much longer ones.
fn within_a_year(text: &str) -> Result<Duration, String> {
    const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);
    let time = crate::time::parse(text)?;
    if time > YEAR {
        return Err("must be at most a year".to_owned());
    }
    Ok(time)
}

async fn simulate(args: &Args) -> Result<Figures, Failure> {
    let plan = Plan::of(args)?;
    let (store, clock) = start::aligned_store().await;
    let limiters = plan.limiters(args, &store)?;
    let policy = limiters[0].policy();
    start::move_to_mid_window(&store, &clock, &policy).await?;
    let load = Load {
        groups: &plan.groups,
        cost: plan.cost,
        duration: args.duration,
        work: args.work,
        max_computing: args.max_computing,
    };
    let run = load.run(&limiters).await?;
    Ok(Figures::new(args, &plan, &policy, &run))
}
