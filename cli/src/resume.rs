//! `throttle resume`: ends a pause.

use serde::Serialize;
use tower_throttle::Limiter;
use tower_throttle::store::KeyState;

use crate::chosen::{Chosen, Found};
use crate::failure::Failure;
use crate::outcome::{Done, Outcomes};
use crate::output::Output;

/// End the pause of a key, in all processes
///
/// It also ends a limit that the upstream has announced. A quarantine goes on.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
}

#[derive(Serialize)]
struct Resumed {
    /// True if there was anything to end.
    resumed: bool,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    let found = args.chosen.find().await?;
    found.is_known()?;
    let mut outcomes = Outcomes::of(&found.key);
    for stored in &found.policies {
        let resumed = match stored.limiter(&found) {
            Ok((state, limiter)) => resume(&found, &limiter, state).await,
            Err(failure) => Err(failure),
        };
        outcomes.push(stored.stored.policy_name(), stored.policy(), resumed);
    }
    outcomes.tell(output)
}

async fn resume(found: &Found, limiter: &Limiter, state: &KeyState) -> Result<Resumed, Failure> {
    limiter.resume(found.key.clone()).await?;
    Ok(Resumed {
        resumed: state.pause().is_some() || state.allowance().is_some(),
    })
}

impl Done for Resumed {
    const WHAT: &'static str = "resumed";

    fn text(&self) -> String {
        let told = if self.resumed {
            "resumes"
        } else {
            "was not paused"
        };
        told.to_owned()
    }
}
