//! `throttle pause`: stops departures of a key.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use tower_throttle::Limiter;
use tower_throttle::Quota;

use crate::failure::{Failure, print_hint};
use crate::key_args::{FoundKey, KeyArgs};
use crate::outcome::{Done, Outcomes};
use crate::output::Output;
use crate::status::in_seconds;
use crate::time::brief;

/// Stop departures of a key in all processes
///
/// The pause applies to all policies that have state for the key, or to the one given with `--policy`. Without any state,
/// it applies to limiters without a name. It takes effect within 100 ms and a round trip. Waiting requests keep their
/// places. A longer pause is not shortened.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,

    /// Length of the pause, such as 30s or "1h 30m"
    #[arg(value_name = "TIME", value_parser = crate::time::parse)]
    time: Duration,
}

#[derive(Serialize)]
struct Paused {
    #[serde(rename = "paused_seconds", serialize_with = "in_seconds")]
    paused: Duration,
    /// True if the key was already paused for longer.
    longer: bool,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    if args.time.is_zero() {
        return Err(Failure::usage("the time must be greater than zero")
            .hint("`throttle resume` ends a pause"));
    }
    let time = args.time.min(LONGEST);
    let found = args.key.look().await?;
    found.require_key()?;
    let mut outcomes = Outcomes::of(&found.key);
    for stored in &found.policies {
        let paused = match stored.limiter(&found) {
            Ok((state, limiter)) => pause(&found, &limiter, time, state.pause).await,
            Err(failure) => Err(failure),
        };
        outcomes.push(stored.stored.policy_name(), stored.policy(), paused);
    }
    if found.policies.is_empty() {
        let name = args.key.policy();
        // A placeholder: the next call of a limiter replaces it by its own quotas.
        let limiter = found.limiter(name, [Quota::per_second(1)])?;
        let shown = name.unwrap_or("(unnamed)").to_owned();
        outcomes.push(name, shown, pause(&found, &limiter, time, None).await);
        print_hint(match name {
            None => "the key has no state; if its limiter or rule has a name, pass `--policy NAME`",
            Some(_) => "the key has no state under this policy; check both names",
        });
    }
    outcomes.finish(output)
}

async fn pause(
    found: &FoundKey,
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
        let note = if self.longer {
            ", because of an earlier pause"
        } else {
            ""
        };
        format!("is paused for {}{note}", brief(self.paused))
    }
}
