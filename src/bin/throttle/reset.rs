//! `throttle reset`: a fresh start for a key.

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;
use tower_throttle::store::{KeyState, Store as _, StoreError, StoredKey, Word};

use crate::chosen::{Chosen, Found};
use crate::failure::Failure;
use crate::outcome::{Done, Outcomes};
use crate::output::Output;

/// Forget all departures of a key, for all replicas
///
/// As many may follow as the quotas allow, besides those that hold slots already and those that have just
/// departed: so up to twice as many may depart in one window. A pause is forgotten, too. A replica
/// that remembers a refusal, by its denial cache, goes on refusing until the time that it was told; those who wait do not.
/// What stands under the names of the key, and was not written by a throttle, is deleted.
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
    /// Whether anything else than a throttle had written what was there.
    foreign: bool,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    if !args.yes && !io::stdin().is_terminal() {
        let nobody = Failure::usage("nobody is there who could say whether it is meant");
        return Err(nobody.hint("`--yes` says so"));
    }
    let found = args.chosen.find().await?;
    found.is_known()?;
    let mut states = found.store.look(&found.policies).await;
    let is_empty = |state: &Result<KeyState, _>| matches!(state, Ok(it) if it.values().is_empty());
    if states.iter().all(is_empty) {
        return Err(args.chosen.nothing());
    }
    if !args.yes {
        if !is_meant(&found)? {
            return Err(Failure::new("nothing was reset"));
        }
        // It may have taken a while to say so.
        states = found.store.look(&found.policies).await;
    }
    let mut outcomes = Outcomes::of(&found.key);
    for (stored, state) in found.policies.iter().zip(states) {
        let reset = found.reset(stored, state).await;
        outcomes.push(stored, reset.map_err(Failure::from));
    }
    outcomes.tell(output)
}

impl Found {
    async fn reset(
        &self,
        stored: &StoredKey,
        state: Result<KeyState, StoreError>,
    ) -> Result<Reset, StoreError> {
        let (key, policy) = (&self.key, stored.policy());
        let life = match state {
            Ok(state) => state.life(),
            // Its names are those of this key, and whoever has a use for it was asked.
            Err(error) if error.is_unrecognized_value() => {
                self.store.reset(key, policy).await?;
                self.store.heed(key, policy, Word::Resume).await?;
                return Ok(Reset { foreign: true });
            }
            Err(error) => return Err(error),
        };
        // Replicas have heard of a pause, too.
        self.store.heed(key, policy, Word::Resume).await?;
        match life {
            None => self.store.reset(key, policy).await?,
            // Strict limiters would take it for a loss, and rest.
            Some(life) => {
                let anew = Word::Quarantine {
                    span: 0,
                    known: life.start,
                };
                self.store.heed(key, policy, anew).await?;
            }
        }
        Ok(Reset { foreign: false })
    }
}

impl Done for Reset {
    const WHAT: &'static str = "reset";

    fn text(&self) -> String {
        let told = if self.foreign {
            "was reset: what was there no throttle had written"
        } else {
            "was reset"
        };
        told.to_owned()
    }
}

fn is_meant(found: &Found) -> Result<bool, Failure> {
    let policies: Vec<_> = found.policies.iter().map(|it| it.policy().id()).collect();
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
