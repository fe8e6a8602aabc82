//! `throttle resume`: ends a pause.

use serde::Serialize;
use tower_throttle::store::{Store as _, Word};

use crate::chosen::Chosen;
use crate::failure::Failure;
use crate::outcome::{Done, Outcomes};
use crate::output::Output;

/// End the pause of a key, in all replicas
///
/// With it ends whatever else the upstream has said of the key. Those who wait with slots behind the end of the
/// pause ask for others a sixth of a second later. A key that rests
/// as its state was lost goes on resting.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
}

#[derive(Serialize)]
struct Resumed {
    /// Whether there was anything to end.
    resumed: bool,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    let found = args.chosen.find().await?;
    found.is_known()?;
    let mut outcomes = Outcomes::of(&found.key);
    for stored in &found.policies {
        let resume = found.store.heed(&found.key, stored.policy(), Word::Resume);
        let resumed = resume.await.map(|notice| Resumed {
            resumed: notice.until > 0,
        });
        outcomes.push(stored, resumed.map_err(Failure::from));
    }
    outcomes.tell(output)
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
