//! `throttle reset`: a fresh start for a key.

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

use crate::chosen::{Chosen, Found, Stored};
use crate::failure::Failure;
use crate::outcome::{Done, Outcomes};
use crate::output::Output;

/// Forget all departures of a key, for all processes
///
/// As many requests may depart as the quotas allow. Requests that have just departed are not counted, so up to twice
/// as many may depart in one window. A pause is forgotten, too. A value of the key that throttle did not write is
/// deleted.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

#[derive(Serialize)]
struct Reset {
    /// True if throttle did not write the value.
    foreign: bool,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    if !args.yes && !io::stdin().is_terminal() {
        let nobody = Failure::usage("there is no terminal to ask for confirmation");
        return Err(nobody.hint("`--yes` confirms"));
    }
    let found = args.chosen.find().await?;
    found.is_known()?;
    if !args.yes && !is_confirmed(&found)? {
        return Err(Failure::new("nothing was reset"));
    }
    let mut outcomes = Outcomes::of(&found.key);
    for stored in &found.policies {
        let reset = found.reset(stored).await;
        outcomes.push(stored.stored.policy_name(), stored.policy(), reset);
    }
    outcomes.tell(output)
}

impl Found {
    async fn reset(&self, stored: &Stored) -> Result<Reset, Failure> {
        if matches!(&stored.state, Err(error) if error.is_unrecognized_value()) {
            self.store.delete(&stored.stored).await?;
            return Ok(Reset { foreign: true });
        }
        let (_, limiter) = stored.limiter(self)?;
        limiter.reset(self.key.clone()).await?;
        Ok(Reset { foreign: false })
    }
}

impl Done for Reset {
    const WHAT: &'static str = "reset";

    fn text(&self) -> String {
        let told = if self.foreign {
            "was reset: throttle had not written its value"
        } else {
            "was reset"
        };
        told.to_owned()
    }
}

fn is_confirmed(found: &Found) -> Result<bool, Failure> {
    let policies: Vec<_> = found.policies.iter().map(Stored::policy).collect();
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
