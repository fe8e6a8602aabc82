//! The result of a command for each policy of a key: [`Outcomes`].

use std::io::{self, Write};

use serde::Serialize;
use tower_throttle::key::Key;

use crate::failure::Failure;
use crate::output::{Output, Report};
use crate::printable::printable;

/// The result of a command that succeeded for a policy.
pub(crate) trait Done: Serialize {
    /// A participle for messages, such as `paused`.
    const WHAT: &'static str;

    /// The text that follows the name of the policy.
    fn text(&self) -> String;
}

/// The result for each policy of a key. If one fails, the command continues with the others.
#[derive(Serialize)]
pub(crate) struct Outcomes<T> {
    key: String,
    policies: Vec<Outcome<T>>,
    #[serde(skip)]
    failures: Vec<Failure>,
}

#[derive(Serialize)]
struct Outcome<T> {
    /// The name of the policy, if it has one.
    policy: Option<String>,
    /// The name of the policy, or its quotas.
    #[serde(skip)]
    shown_policy: String,
    #[serde(flatten)]
    done: Option<T>,
    error: Option<String>,
}

impl<T: Done> Outcomes<T> {
    pub(crate) fn of(key: &Key) -> Self {
        Self {
            key: key.to_string(),
            policies: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Adds the outcome of a policy. `shown_policy` is its name in text output.
    pub(crate) fn push(
        &mut self,
        policy: Option<&str>,
        shown_policy: String,
        outcome: Result<T, Failure>,
    ) {
        let (done, failure) = match outcome {
            Ok(done) => (Some(done), None),
            Err(failure) => (None, Some(failure)),
        };
        self.policies.push(Outcome {
            policy: policy.map(str::to_owned),
            shown_policy,
            done,
            error: failure.as_ref().map(ToString::to_string),
        });
        self.failures.extend(failure);
    }

    /// Prints all outcomes. Fails if one of them is a failure.
    pub(crate) fn finish(&self, output: &mut Output) -> Result<(), Failure> {
        output.show(self)?;
        let what = T::WHAT;
        let message = match (&self.failures[..], &self.policies[..]) {
            ([], _) => return Ok(()),
            ([failure], [policy]) => format!("{} was not {what}: {failure}", policy.shown_policy),
            (failures, policies) => {
                let (failed, all) = (failures.len(), policies.len());
                format!("{failed} of {all} policies were not {what}")
            }
        };
        Err(Failure::of_all(message, &self.failures))
    }
}

impl<T: Done> Report for Outcomes<T> {
    fn write(&self, text: &mut dyn Write) -> io::Result<()> {
        for Outcome {
            shown_policy,
            done,
            error,
            ..
        } in &self.policies
        {
            let result = match (done, error) {
                (Some(done), _) => done.text(),
                (None, why) => {
                    let why = why.as_deref().unwrap_or_default();
                    format!("was not {}: {why}", T::WHAT)
                }
            };
            let key = printable(&self.key);
            writeln!(text, "{key}  {shown_policy}  {}", printable(&result))?;
        }
        Ok(())
    }
}
