//! `throttle reset`: a fresh start for a key.

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;
use tower_throttle::store::{Store as _, Word};

use crate::chosen::{Chosen, Found};
use crate::failure::Failure;
use crate::output::{Output, Report};

/// Forget all departures of a key, for all replicas
///
/// As many may follow as the quotas allow, besides those that hold slots already and those that have just
/// departed: so up to twice as many may depart in one window. A pause is forgotten, too. A replica
/// that remembers a refusal, by its denial cache, goes on refusing until the time that it was told; those who wait do not.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,

    /// Do not ask whether it is meant
    #[arg(long, short)]
    yes: bool,
}

#[derive(Serialize)]
struct Reset {
    key: String,
    /// The ids of those that were.
    policies: Vec<String>,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    if !args.yes && !io::stdin().is_terminal() {
        let nobody = Failure::usage("nobody is there who could say whether it is meant");
        return Err(nobody.hint("`--yes` says so"));
    }
    let found = args.chosen.find().await?;
    found.is_known()?;
    let policies = found.policies.iter().map(|it| it.policy().id().to_owned());
    let policies: Vec<_> = policies.collect();
    if !args.yes && !is_meant(&found, &policies)? {
        return Err(Failure::new("nothing was reset"));
    }
    let states = found.store.look(&found.policies).await;
    for (stored, state) in found.policies.iter().zip(states) {
        let (key, policy) = (&found.key, stored.policy());
        // Replicas have heard of a pause, too.
        found.store.heed(key, policy, Word::Resume).await?;
        match state?.life() {
            None => found.store.reset(key, policy).await?,
            // Strict limiters would take it for a loss, and rest.
            Some(life) => {
                let anew = Word::Quarantine {
                    span: 0,
                    known: life.start,
                };
                found.store.heed(key, policy, anew).await?;
            }
        }
    }
    let key = found.key.to_string();
    output.show(&Reset { key, policies })
}

fn is_meant(found: &Found, policies: &[String]) -> Result<bool, Failure> {
    let ask = || {
        let mut stderr = anstream::stderr().lock();
        write!(
            stderr,
            "Forget what departed for {:?} by {}? [y/N] ",
            found.key,
            policies.join(", ")
        )?;
        stderr.flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    };
    let unasked = |error: io::Error| Failure::new("the question cannot be asked").caused_by(&error);
    ask().map_err(unasked)
}

impl Report for Reset {
    fn write(&self, text: &mut dyn Write) -> io::Result<()> {
        for policy in &self.policies {
            writeln!(text, "{}  {policy}  was reset", self.key)?;
        }
        Ok(())
    }
}
