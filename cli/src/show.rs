//! `throttle show`: the state of a key.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::Style;
use serde::Serialize;
use tower_throttle::store::inspect::KeyState;

use crate::failure::Failure;
use crate::key_args::{KeyArgs, Stored};
use crate::level;
use crate::output::{Output, Report};
use crate::printable::printable;
use crate::status::{Allowance, Amounts, KeyStatus, in_seconds, optional_in_seconds};
use crate::time::{brief, count};

const KEY: Style = Style::new().bold();

/// The most entries of waiting requests that the text lists.
const MOST_WAITING: usize = 5;

/// Show the state of a key under all of its policies
///
/// This changes nothing. To find the key, it scans the names of all keys in Redis, 1,000 at a time.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
}

#[derive(Serialize)]
struct Shown {
    key: String,
    policies: Vec<PolicyReport>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PolicyReport {
    Readable(Box<Details>),
    Unreadable {
        policy: Option<String>,
        #[serde(skip)]
        shown_policy: String,
        error: String,
    },
}

/// The state under one policy, in full.
#[derive(Serialize)]
struct Details {
    #[serde(flatten)]
    status: KeyStatus,
    processes: Vec<Process>,
    /// Present under strict recovery.
    generation: Option<Generation>,
    redis: Value,
}

/// The waiting requests of a process, with the same priority and share.
#[derive(Serialize)]
struct Process {
    id: String,
    priority: &'static str,
    /// A hash of the name.
    share: Option<String>,
    units: Amounts,
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
    #[serde(rename = "expires_seconds", serialize_with = "optional_in_seconds")]
    expires: Option<Duration>,
}

pub(crate) async fn run(args: Args, output: &mut Output) -> Result<(), Failure> {
    let found = args.key.find().await?;
    let mut failures = Vec::new();
    let policies = found.policies.iter().map(|it| match &it.state {
        Ok(state) => PolicyReport::Readable(Box::new(Details::new(it, state))),
        Err(error) => {
            let failure = Failure::from(error.clone());
            let report = PolicyReport::Unreadable {
                policy: it.stored.policy_name().map(str::to_owned),
                shown_policy: it.policy(),
                error: failure.to_string(),
            };
            failures.push(failure);
            report
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

impl Details {
    fn new(it: &Stored, state: &KeyState) -> Self {
        let processes = state.waiting.iter().map(|it| Process {
            id: format!("{:x}", it.process),
            priority: level::name(it.priority),
            share: it.share.map(|share| format!("{share:x}")),
            units: it.units.iter().copied().collect(),
            longest: it.longest,
            overdue: it.is_overdue,
        });
        Self {
            status: KeyStatus::new(&it.stored, state),
            processes: processes.collect(),
            generation: state
                .generation
                .map(|(age, version)| Generation { age, version }),
            redis: Value {
                name: state.name.clone(),
                bytes: state.bytes,
                expires: state.expiry,
            },
        }
    }

    fn write(&self, text: &mut dyn Write) -> io::Result<()> {
        let status = &self.status;
        let (key, policy) = (status.shown_key(), status.shown_policy());
        writeln!(text, "{KEY}{key}{KEY:#}  {policy}")?;
        for it in &status.quotas {
            let bound = if it.exact { "" } else { "at most " };
            let (used, capacity) = (count(it.used), count(it.capacity));
            write!(
                text,
                "  used       {bound}{used} of {capacity}, by {}",
                it.quota
            )?;
            match (it.rate, it.processes) {
                (Some(rate), _) => writeln!(text, " ({rate:.1}/s)")?,
                (_, Some(1)) => writeln!(text, " (1 process)")?,
                (_, Some(processes)) => writeln!(text, " ({} processes)", count(processes))?,
                _ => writeln!(text)?,
            }
        }
        let when = |delay: Duration| match delay {
            Duration::ZERO => "now".to_owned(),
            delay => format!("in {}", brief(delay)),
        };
        writeln!(text, "  remaining  {}", status.remaining)?;
        match status.next {
            None => writeln!(text, "  next       when a place is free")?,
            Some(next) => writeln!(text, "  next       {}", when(next))?,
        }
        match status.full {
            None => writeln!(
                text,
                "  full       when the requests in progress have ended"
            )?,
            Some(full) => writeln!(text, "  full       {}", when(full))?,
        }
        for process in self.processes.iter().take(MOST_WAITING) {
            let Process {
                id,
                priority,
                share,
                units,
                longest,
                overdue,
            } = process;
            let of = match (*priority, share) {
                ("normal", None) => String::new(),
                ("normal", Some(share)) => format!("of share {share} "),
                (other, None) => format!("of {other} priority "),
                (other, Some(share)) => format!("of {other} priority and share {share} "),
            };
            let overdue = if *overdue { ", overdue" } else { "" };
            let longest = brief(*longest);
            writeln!(
                text,
                "  waiting    {units} {of}in process {id}, up to {longest}{overdue}"
            )?;
        }
        if let Some(more) = self.processes.len().checked_sub(MOST_WAITING + 1) {
            let more = more + 1;
            writeln!(text, "  waiting    {more} more entries, see `--json`")?;
        }
        if let Some(left) = status.paused {
            let why = "by a user or the upstream";
            writeln!(text, "  paused     for {}, {why}", brief(left))?;
        }
        for Allowance { unit, left, lasts } in &status.allowances {
            let left: Amounts = [(*unit, *left)].into_iter().collect();
            let lasts = brief(*lasts);
            writeln!(
                text,
                "  allowed    {left} for {lasts}, announced by the upstream"
            )?;
        }
        if let Some(left) = status.quarantined {
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
                PolicyReport::Readable(details) => details.write(text)?,
                PolicyReport::Unreadable {
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
