//! `throttle pause`: lets nothing depart for a key.

use std::time::Duration;

use serde::Serialize;
use tower_throttle::store::{Store as _, Word};

use crate::chosen::Chosen;
use crate::failure::{Failure, remark};
use crate::outcome::{Done, Outcomes};
use crate::output::Output;
use crate::standing::in_seconds;
use crate::time::brief;

/// Let nothing depart for a key, in all replicas
///
/// It holds for all policies that have state for the key, or for the one that is named. Nobody loses a place in
/// a line. Replicas that listen stop within a round trip; others when they next ask Redis, which they do twice a
/// second while anybody waits. A pause that is longer already stays as it is.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,

    /// For how long, such as 30s or "1h 30m"
    #[arg(value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Duration,
}

#[derive(Serialize)]
struct Paused {
    #[serde(rename = "paused_seconds", serialize_with = "in_seconds")]
    paused: Duration,
    /// Whether it was paused for longer already.
    longer: bool,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    if args.time.is_zero() {
        return Err(Failure::usage("a pause of no time is none").hint("`throttle resume` ends one"));
    }
    let found = args.chosen.find().await?;
    found.is_known()?;
    let word = Word::Pause {
        span: u64::try_from(args.time.as_micros()).unwrap_or(u64::MAX),
        departed: u64::MAX,
    };
    let mut outcomes = Outcomes::of(&found.key);
    for stored in &found.policies {
        let notice = found.store.heed(&found.key, stored.policy(), word).await;
        let paused = notice.map(|notice| Paused {
            paused: Duration::from_micros(notice.paused.saturating_sub(notice.now)),
            longer: notice.until == 0,
        });
        outcomes.push(stored, paused.map_err(Failure::from));
    }
    let told = outcomes.tell(output);
    if outcomes.is_any_done() && !output.is_json() {
        remark("replicas with other quotas for this key do not know of it");
    }
    told
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
