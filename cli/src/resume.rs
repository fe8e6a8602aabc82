//! `throttle resume`: ends a pause.

use serde::Serialize;
use tower_throttle::Limiter;
use tower_throttle::store::inspect::KeyState;

use crate::failure::Failure;
use crate::key_args::{FoundKey, KeyArgs};
use crate::outcome::{Done, Outcomes};
use crate::output::Output;

/// End the pause of a key in all processes
///
/// This also removes a limit that the upstream has announced. A quarantine continues.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
}

#[derive(Serialize)]
struct Resumed {
    /// True if there was a pause or an announced limit.
    resumed: bool,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    let found = args.key.find().await?;
    found.require_key()?;
    let mut outcomes = Outcomes::of(&found.key);
    for stored in &found.policies {
        let resumed = match stored.limiter(&found) {
            Ok((state, limiter)) => resume(&found, &limiter, state).await,
            Err(failure) => Err(failure),
        };
        outcomes.push(stored.stored.policy_name(), stored.policy(), resumed);
    }
    outcomes.finish(output)
}

async fn resume(found: &FoundKey, limiter: &Limiter, state: &KeyState) -> Result<Resumed, Failure> {
    limiter.resume(found.key.clone()).await?;
    Ok(Resumed {
        resumed: state.pause.is_some() || !state.allowances.is_empty(),
    })
}

impl Done for Resumed {
    const WHAT: &'static str = "resumed";

    fn text(&self) -> String {
        let text = if self.resumed {
            "was resumed"
        } else {
            "was not paused"
        };
        text.to_owned()
    }
}
