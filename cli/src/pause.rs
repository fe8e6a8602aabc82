//! `throttle pause`: lets nothing depart for a key.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use tower_throttle::Limiter;
use tower_throttle::Quota;

use crate::chosen::{Chosen, Found};
use crate::failure::Failure;
use crate::outcome::{Done, Outcomes};
use crate::output::Output;
use crate::standing::in_seconds;
use crate::time::brief;

/// Let nothing depart for a key, in all processes
///
/// It holds for all policies that have state for the key, or for the one that is named. No request loses its place.
/// Requests depart for up to 100 ms and a round trip more. A longer pause stays as it is.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,

    /// How long, such as 30s or "1h 30m"
    #[arg(value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Duration,

    /// The quota of the limiters, such as "10/s", if the key has no state yet; several hold jointly
    #[arg(long = "quota", value_name = "QUOTA")]
    quotas: Vec<Quota>,
}

#[derive(Serialize)]
struct Paused {
    #[serde(rename = "paused_seconds", serialize_with = "in_seconds")]
    paused: Duration,
    /// True if a longer pause was set before.
    longer: bool,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    if args.time.is_zero() {
        return Err(Failure::usage("a pause of no time is none").hint("`throttle resume` ends one"));
    }
    let time = args.time.min(LONGEST);
    let found = args.chosen.look().await?;
    found.is_known()?;
    let mut outcomes = Outcomes::of(&found.key);
    for stored in &found.policies {
        let paused = match stored.limiter(&found) {
            Ok((state, limiter)) => pause(&found, &limiter, time, state.pause()).await,
            Err(failure) => Err(failure),
        };
        outcomes.push(stored.stored.policy_name(), stored.policy(), paused);
    }
    if found.policies.is_empty() {
        if args.quotas.is_empty() {
            let hint = "`--quota` gives the quotas of its limiters, and `--policy` the name of their policy";
            return Err(args.chosen.nothing().hint(hint));
        }
        let name = args.chosen.policy();
        let limiter = found.limiter(name, args.quotas.iter().copied())?;
        let quotas: Vec<_> = args.quotas.iter().map(Quota::to_string).collect();
        let shown = name.map_or_else(|| quotas.join(" + "), str::to_owned);
        outcomes.push(name, shown, pause(&found, &limiter, time, None).await);
    }
    outcomes.tell(output)
}

async fn pause(
    found: &Found,
    limiter: &Limiter,
    time: Duration,
    before: Option<Duration>,
) -> Result<Paused, Failure> {
    limiter
        .pause(found.key.clone(), Instant::now() + time)
        .await?;
    Ok(Paused {
        paused: before.map_or(time, |before| before.max(time)),
        longer: before.is_some_and(|before| before > time),
    })
}

impl Done for Paused {
    const WHAT: &'static str = "paused";

    fn text(&self) -> String {
        let already = if self.longer {
            ", as it was already"
        } else {
            ""
        };
        format!("is paused for {}{already}", brief(self.paused))
    }
}
