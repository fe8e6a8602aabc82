//! `throttle simulate`: what becomes of callers under quotas, in virtual time.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::Builder;
use tower_throttle::Quota;

use self::figures::Figures;
use self::load::{Cut, Load, MOST_REQUESTS};
use self::plan::Plan;
use crate::failure::{Failure, remark};
use crate::output::Output;
use crate::time::span;

mod figures;
mod load;
mod plan;
mod start;

/// Show when the requests of many callers depart under quotas
///
/// It is the limiter itself that decides, on an embedded store, in virtual time: minutes take as long as it
/// takes to compute them, and no Redis is asked. Each caller makes its next request as soon as the one before
/// has departed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A quota such as "10/s" or "100/m gcra burst=20"; several hold jointly
    #[arg(
        long = "quota",
        value_name = "QUOTA",
        required_unless_present = "rules"
    )]
    quotas: Vec<Quota>,

    /// A file of rules, of which one has the quotas, the bounds and the cost
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quotas", "buffer", "guard", "max_wait", "max_waiting"])]
    rules: Option<PathBuf>,

    /// The rule of this name, instead of the last one
    #[arg(long, value_name = "NAME", requires = "rules")]
    rule: Option<String>,

    /// How many callers there are
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    callers: u32,

    /// How many processes they are spread over, which share the store
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    replicas: u32,

    /// For how long they make requests
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = within_a_year)]
    duration: Duration,

    /// How long the way to the store and back takes; 0s is an embedded one
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = within_a_year)]
    latency: Duration,

    /// What each request costs; if not given, 1, or what the rule says
    #[arg(long, value_name = "N")]
    cost: Option<NonZeroU32>,

    /// Extra spacing for the jitter between departure and arrival
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    buffer: Option<Duration>,

    /// How late after its slot a request may depart
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    guard: Option<Duration>,

    /// The longest wait; who would wait longer is refused, and asks again when its turn would have come
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    max_wait: Option<Duration>,

    /// The longest line of each process; who would make it longer is refused, and asks again a second later
    #[arg(long, value_name = "N")]
    max_waiting: Option<usize>,

    /// How long to compute at most, by the clock on the wall
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = within_a_year)]
    patience: Duration,
}

pub(crate) fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    if args.duration.is_zero() {
        return Err(Failure::usage("a duration of zero shows nothing"));
    }
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| Failure::new("no runtime could be started").caused_by(&error))?;
    let figures = runtime.block_on(simulate(&args))?;
    output.show(&figures)?;
    match figures.cut {
        None => {}
        Some(Cut::Requests) => remark(format!("it ends after {MOST_REQUESTS} requests")),
        Some(Cut::Patience) => remark(format!(
            "it ends after {} of computing, and somewhere else the next time: `--patience` says how long it may take",
            span(args.patience)
        )),
    }
    Ok(())
}

/// Longer ones are out of a timer's reach.
fn within_a_year(text: &str) -> Result<Duration, String> {
    const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time > YEAR {
        return Err("it is longer than a year".to_owned());
    }
    Ok(time)
}

async fn simulate(args: &Args) -> Result<Figures, Failure> {
    let plan = Plan::of(args)?;
    let (store, clock) = start::store_in_step().await;
    let limiters = plan.limiters(args, &store)?;
    let policy = limiters[0].policy();
    start::mid_window(&store, &clock, &policy).await?;
    let load = Load {
        callers: args.callers,
        cost: plan.cost,
        duration: args.duration,
        patience: args.patience,
    };
    let run = load.run(&limiters).await?;
    Ok(Figures::new(args, plan.cost, &policy, &run))
}
