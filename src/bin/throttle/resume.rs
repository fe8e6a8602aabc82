//! `throttle resume`: ends a pause.

use std::io::{self, Write};

use serde::Serialize;
use tower_throttle::store::{Store as _, Word};

use crate::chosen::Chosen;
use crate::failure::Failure;
use crate::output::{Output, Report};

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
    key: String,
    policies: Vec<Policy>,
}

#[derive(Serialize)]
struct Policy {
    policy: String,
    /// Whether there was anything to end.
    resumed: bool,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    let found = args.chosen.find().await?;
    found.is_known()?;
    let mut policies = Vec::with_capacity(found.policies.len());
    for stored in &found.policies {
        let resume = found.store.heed(&found.key, stored.policy(), Word::Resume);
        policies.push(Policy {
            policy: stored.policy().id().to_owned(),
            resumed: resume.await?.until > 0,
        });
    }
    let key = found.key.to_string();
    output.show(&Resumed { key, policies })
}

impl Report for Resumed {
    fn write(&self, text: &mut dyn Write) -> io::Result<()> {
        for it in &self.policies {
            let what = if it.resumed {
                "resumes"
            } else {
                "was not paused"
            };
            writeln!(text, "{}  {}  {what}", self.key, it.policy)?;
        }
        Ok(())
    }
}
