//! `throttle reset`: removes the state of a key.

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

use crate::failure::Failure;
use crate::key_args::{FoundKey, KeyArgs, Stored};
use crate::outcome::{Done, Outcomes};
use crate::output::Output;

/// Remove the recorded departures and the pause of a key, for all processes
///
/// The quotas are then fully available again, except that requests in progress keep their places. Earlier departures no
/// longer count, so up to twice the quota may depart within one window. It also ends a quarantine and what the upstream has
/// announced. A value of the key that throttle did not write is deleted.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,

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
        let message = "standard input is not a terminal: pass `--yes` to confirm";
        return Err(Failure::usage(message));
    }
    let found = args.key.find().await?;
    found.require_key()?;
    if !args.yes && !is_confirmed(&found)? {
        return Err(Failure::new("not confirmed: nothing was reset"));
    }
    let mut outcomes = Outcomes::of(&found.key);
    for stored in &found.policies {
        let reset = found.reset(stored).await;
        outcomes.push(stored.stored.policy_name(), stored.policy(), reset);
    }
    outcomes.finish(output)
}

impl FoundKey {
    async fn reset(&self, stored: &Stored) -> Result<Reset, Failure> {
        if stored.is_foreign() {
            self.store.delete(&stored.stored).await?;
            return Ok(Reset { foreign: true });
        }
        let (_, limiter) = stored.limiter(self)?;
        limiter.reset(self.key.clone()).await?;
        Ok(Reset { foreign: false })
    }
}

impl Stored {
    /// Returns true if throttle did not write the value.
    fn is_foreign(&self) -> bool {
        matches!(&self.state, Err(error) if error.is_unrecognized_value())
    }
}

impl Done for Reset {
    const WHAT: &'static str = "reset";

    fn text(&self) -> String {
        let text = if self.foreign {
            "was reset: deleted a value that throttle did not write"
        } else {
            "was reset"
        };
        text.to_owned()
    }
}

fn is_confirmed(found: &FoundKey) -> Result<bool, Failure> {
    let shown = |stored: &Stored| match stored.is_foreign() {
        true => format!("{} (a value that throttle did not write)", stored.policy()),
        false => stored.policy(),
    };
    let policies: Vec<_> = found.policies.iter().map(shown).collect();
    let ask = || {
        let mut stderr = anstream::stderr().lock();
        write!(
            stderr,
            "Reset the key {:?} for {}? [y/N] ",
            found.key,
            policies.join(", ")
        )?;
        stderr.flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    };
    let failed = |error: io::Error| Failure::new("cannot ask for confirmation").caused_by(&error);
    ask().map_err(failed)
}
