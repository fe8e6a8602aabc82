//! `throttle show`: the state of a key.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::Style;
use serde::Serialize;
use tower_throttle::store::KeyState;

use crate::chosen::{Chosen, Stored};
use crate::failure::Failure;
use crate::output::{Output, Report};
use crate::printable::printable;
use crate::standing::{Allowance, Standing, in_seconds, perhaps_in_seconds};
use crate::time::{brief, count};

const KEY: Style = Style::new().bold();

/// The most processes that the text lists.
const MOST_PROCESSES: usize = 5;

/// Show the state of a key under all of its policies
///
/// It reads all that Redis holds of the key, and changes nothing. Redis looks at the names of all keys, 1,000 at a
/// time, to find those of this one.
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

#[derive(Serialize)]
#[serde(untagged)]
enum Seen {
    Readable(Box<Closely>),
    Unreadable {
        policy: Option<String>,
        #[serde(skip)]
        shown_policy: String,
        error: String,
    },
}

/// The state under one policy, with all details.
#[derive(Serialize)]
struct Closely {
    #[serde(flatten)]
    standing: Standing,
    processes: Vec<Process>,
    /// Under strict recovery.
    generation: Option<Generation>,
    redis: Value,
}

/// A process whose requests wait.
#[derive(Serialize)]
struct Process {
    id: String,
    units: u64,
    #[serde(rename = "longest_seconds", serialize_with = "in_seconds")]
    longest: Duration,
    overdue: bool,
}

#[derive(Serialize)]
struct Generation {
    #[serde(rename = "age_seconds", serialize_with = "in_seconds")]
    age: Duration,
    version: u64,
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
    let mut failures = Vec::new();
    let policies = found.policies.iter().map(|it| match &it.state {
        Ok(state) => Seen::Readable(Box::new(Closely::new(it, state))),
        Err(error) => {
            let failure = Failure::from(error.clone());
            let seen = Seen::Unreadable {
                policy: it.stored.policy_name().map(str::to_owned),
                shown_policy: it.policy(),
                error: failure.to_string(),
            };
            failures.push(failure);
            seen
        }
    });
    let policies: Vec<_> = policies.collect();
    let (failed, all) = (failures.len(), policies.len());
    let key = found.key.to_string();
    output.show(&Shown { key, policies })?;
    let message = match &failures[..] {
        [] => return Ok(()),
        [failure] if all == 1 => {
            format!(
                "the state of {:?} cannot be read: {failure}",
                found.key.as_str()
            )
        }
        _ => format!("{failed} of {all} policies cannot be read"),
    };
    Err(Failure::of_all(message, &failures))
}

impl Closely {
    fn new(it: &Stored, state: &KeyState) -> Self {
        let processes = state.waiting().into_iter().map(|it| Process {
            id: format!("{:x}", it.process),
            units: it.units,
            longest: it.longest,
            overdue: it.is_overdue,
        });
        Self {
            standing: Standing::new(&it.stored, state),
            processes: processes.collect(),
            generation: state.generation().map(|it| Generation {
                age: it.age,
                version: it.version,
            }),
            redis: Value {
                name: state.name().to_owned(),
                bytes: state.bytes(),
                expires: state.expiry(),
            },
        }
    }

    fn write(&self, text: &mut dyn Write) -> io::Result<()> {
        let standing = &self.standing;
        let (key, policy) = (standing.shown_key(), standing.shown_policy());
        writeln!(text, "{KEY}{key}{KEY:#}  {policy}")?;
        for it in &standing.quotas {
            let bound = if it.exact { "" } else { "at most " };
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
        let when = |delay: Duration| match delay {
            Duration::ZERO => "now".to_owned(),
            delay => format!("in {}", brief(delay)),
        };
        writeln!(text, "  remaining  {}", count(standing.remaining))?;
        writeln!(text, "  next       {}", when(standing.next))?;
        writeln!(text, "  full       {}", when(standing.full))?;
        for process in self.processes.iter().take(MOST_PROCESSES) {
            let Process {
                id,
                units,
                longest,
                overdue,
            } = process;
            let overdue = if *overdue { ", overdue" } else { "" };
            let longest = brief(*longest);
            writeln!(
                text,
                "  waiting    {units} in process {id}, up to {longest}{overdue}"
            )?;
        }
        if let Some(more) = self.processes.len().checked_sub(MOST_PROCESSES + 1) {
            writeln!(text, "  waiting    in {} more processes", more + 1)?;
        }
        if let Some(left) = standing.paused {
            let why = "by a user, or because the upstream asked for it";
            writeln!(text, "  paused     for {}, {why}", brief(left))?;
        }
        if let Some(Allowance { left, lasts }) = &standing.allowance {
            let (left, lasts) = (count(*left), brief(*lasts));
            writeln!(
                text,
                "  allowed    {left} for {lasts}, announced by the upstream"
            )?;
        }
        if let Some(left) = standing.quarantined {
            let left = brief(left);
            writeln!(
                text,
                "  quarantine for {left}, because state may have been lost"
            )?;
        }
        if let Some(Generation { age, version }) = &self.generation {
            let age = brief(*age);
            writeln!(text, "  generation {age} old, version {version}")?;
        }
        let Value {
            name,
            bytes,
            expires,
        } = &self.redis;
        let expires = match expires {
            Some(left) => format!("expires in {}", brief(*left)),
            None => "never expires".to_owned(),
        };
        writeln!(text, "  stored     {bytes} B, {expires}: {name}")
    }
}

impl Report for Shown {
    fn write(&self, text: &mut dyn Write) -> io::Result<()> {
        for (place, policy) in self.policies.iter().enumerate() {
            if place > 0 {
                writeln!(text)?;
            }
            match policy {
                Seen::Readable(closely) => closely.write(text)?,
                Seen::Unreadable {
                    shown_policy,
                    error,
                    ..
                } => {
                    writeln!(text, "{KEY}{}{KEY:#}  {shown_policy}", printable(&self.key))?;
                    writeln!(text, "  unreadable {}", printable(error))?;
                }
            }
        }
        Ok(())
    }
}
