//! `throttle show`: how a key stands.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::Style;
use serde::Serialize;
use tower_throttle::store::{KeyState, Life, Spent};

use crate::chosen::Chosen;
use crate::failure::Failure;
use crate::output::{Output, Report};
use crate::printable::printable;
use crate::standing::{Standing, perhaps_in_seconds};
use crate::time::{brief, count};

const KEY: Style = Style::new().bold();

/// Show how a key stands under all of its policies
///
/// It reads all that Redis holds of the key, and changes nothing. Without `--quota`, Redis looks at the names of
/// all keys, 1,000 at a time, to find those of this one.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
}

#[derive(Serialize)]
struct Shown {
    key: String,
    policies: Vec<Seen>,
}

/// A policy, and how the key stands under it, or why nobody can tell.
#[derive(Serialize)]
#[serde(untagged)]
enum Seen {
    Closely(Box<Closely>),
    Unreadable { policy: String, error: String },
}

/// How the key stands under one policy, and what is kept for that.
#[derive(Serialize)]
struct Closely {
    #[serde(flatten)]
    standing: Standing,
    /// Of each quota, whether it is known how much of it is used.
    #[serde(skip)]
    exact: Vec<bool>,
    /// Since when, where recovery is strict.
    #[serde(rename = "lives_seconds", serialize_with = "perhaps_in_seconds")]
    age: Option<Duration>,
    redis: Vec<Value>,
}

#[derive(Serialize)]
struct Value {
    name: String,
    bytes: usize,
    #[serde(rename = "expires_seconds", serialize_with = "perhaps_in_seconds")]
    expires: Option<Duration>,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    let found = args.chosen.find().await?;
    let states = found.store.look(&found.policies).await;
    let mut policies = Vec::with_capacity(states.len());
    let mut failures = Vec::new();
    for (stored, state) in found.policies.iter().zip(states) {
        match state {
            Ok(state) if state.values().is_empty() => {}
            Ok(state) => {
                let closely = Closely::new(Standing::new(stored, &state), &state);
                policies.push(Seen::Closely(Box::new(closely)));
            }
            Err(error) => {
                let failure = Failure::from(error);
                policies.push(Seen::Unreadable {
                    policy: stored.policy().id().to_owned(),
                    error: failure.to_string(),
                });
                failures.push(failure);
            }
        }
    }
    if policies.is_empty() {
        return Err(args.chosen.nothing());
    }
    let (failed, all) = (failures.len(), policies.len());
    let key = found.key.to_string();
    output.show(&Shown { key, policies })?;
    match &failures[..] {
        [] => Ok(()),
        [failure] if all == 1 => {
            let message = format!(
                "the state of {:?} cannot be read: {failure}",
                found.key.as_str()
            );
            Err(Failure::of_all(message, &failures))
        }
        _ => {
            let message = format!("{failed} of {all} policies cannot be read");
            Err(Failure::of_all(message, &failures))
        }
    }
}

impl Closely {
    fn new(standing: Standing, state: &KeyState) -> Self {
        let age = |life: Life| Duration::from_micros(state.now().saturating_sub(life.start));
        let values = state.values().iter().map(|value| Value {
            name: value.name().to_owned(),
            bytes: value.bytes(),
            expires: value.expiry(),
        });
        Self {
            redis: values.collect(),
            standing,
            exact: state.spent().iter().map(Spent::is_exact).collect(),
            age: state.life().map(age),
        }
    }

    fn write(&self, text: &mut dyn Write) -> io::Result<()> {
        let standing = &self.standing;
        writeln!(
            text,
            "{KEY}{}{KEY:#}  {}",
            standing.shown_key(),
            standing.policy
        )?;
        for (it, is_exact) in standing.quotas.iter().zip(&self.exact) {
            let bound = if *is_exact { "" } else { "at most " };
            let (used, capacity) = (count(it.used), count(it.capacity));
            write!(
                text,
                "  used       {bound}{used} of {capacity}, by {}",
                it.quota
            )?;
            match it.rate {
                Some(rate) => writeln!(text, " ({rate:.1}/s)")?,
                None => writeln!(text)?,
            }
        }
        writeln!(text, "  remaining  {}", count(standing.remaining))?;
        let next = match standing.next_slot {
            Duration::ZERO => "now".to_owned(),
            delay => format!("in {}", brief(delay)),
        };
        writeln!(text, "  next slot  {next}")?;
        let full = match standing.full {
            Duration::ZERO => "now".to_owned(),
            reset => format!("in {}", brief(reset)),
        };
        writeln!(text, "  full       {full}")?;
        if let Some(left) = standing.paused {
            let why = "as somebody, or the upstream, has said so";
            writeln!(text, "  paused     for {}, {why}", brief(left))?;
        }
        if let Some(allowance) = &standing.allowance {
            let (left, lasts) = (count(allowance.left), brief(allowance.lasts));
            writeln!(
                text,
                "  allowed    {left} for {lasts}, as the upstream has said so"
            )?;
        }
        if let Some(left) = standing.rests {
            writeln!(
                text,
                "  rests      for {}, as its state may have been lost",
                brief(left)
            )?;
        }
        if standing.free_slots > 0 {
            let free = standing.free_slots;
            writeln!(text, "  free       {free} slots that were given back")?;
        }
        if let Some(age) = self.age {
            writeln!(text, "  lives      for {}", brief(age))?;
        }
        for value in &self.redis {
            let expires = match value.expires {
                Some(left) => format!("expires in {}", brief(left)),
                None => "never expires".to_owned(),
            };
            let Value { name, bytes, .. } = value;
            writeln!(text, "  stored     {bytes} B, {expires}: {name}")?;
        }
        Ok(())
    }
}

impl Report for Shown {
    fn write(&self, text: &mut dyn Write) -> io::Result<()> {
        for (place, policy) in self.policies.iter().enumerate() {
            if place > 0 {
                writeln!(text)?;
            }
            match policy {
                Seen::Closely(closely) => closely.write(text)?,
                Seen::Unreadable { policy, error } => {
                    writeln!(text, "{KEY}{}{KEY:#}  {policy}", printable(&self.key))?;
                    writeln!(text, "  unreadable {}", printable(error))?;
                }
            }
        }
        Ok(())
    }
}
