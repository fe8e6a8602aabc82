//! Runs the scripts: one pipeline for a batch.

use redis::{Cmd, Pipeline, Value};
use tokio::time::Instant;

use super::script::Script;
use super::servers::CommandAnswer;
use super::wire::{self, Answer};
use super::{Done, HostClock, Inner, NamedCall, Reading, naming, strange, unrecognized};
use crate::store::StoreError;

impl Inner {
    /// The result of each call, or `None` if its value has to be changed without a script.
    pub(super) async fn run_scripts(
        &self,
        calls: &[NamedCall],
        deadline: Instant,
    ) -> Result<Vec<Option<Result<Done, StoreError>>>, StoreError> {
        let Some(first) = calls.first() else {
            return Ok(Vec::new());
        };
        let server = match calls.iter().any(NamedCall::is_strict) {
            true => self.servers.server(&first.name, deadline).await?,
            false => 0,
        };
        let begun = Instant::now();
        let encoded = calls.iter().map(|named| {
            let now = self.host_clock.as_ref().map_or(0, HostClock::now);
            wire::call(&named.call, server, now)
        });
        let encoded: Vec<_> = encoded.collect();
        let mut answers = vec![None; calls.len()];
        let mut places: Vec<_> = (0..calls.len()).collect();
        // `EVAL` also loads the script. It cannot miss it, so there is no third attempt.
        for command in ["EVALSHA", "EVAL"] {
            let mut pipe = Pipeline::with_capacity(places.len());
            for &place in &places {
                pipe.add_command(self.command(command, &calls[place], &encoded[place]));
            }
            let latest = self.run(None, &first.name, &pipe, deadline).await?;
            for (&place, answer) in places.iter().zip(latest) {
                answers[place] = Some(answer);
            }
            places.retain(|&place| answers[place].as_ref().is_some_and(is_unknown_script));
            if places.is_empty() {
                break;
            }
        }
        let results = calls.iter().zip(answers).map(|(named, answer)| {
            let mut answer = answer?;
            if self.host_clock.is_some() {
                // The clock was read before the call was sent.
                answer.origin.sent = begun;
            }
            result(named, answer, server).transpose()
        });
        Ok(results.collect())
    }

    fn command(&self, command: &str, named: &NamedCall, encoded: &[u8]) -> Cmd {
        let script = Script::of(named.call.policy.counters());
        let mut eval = redis::cmd(command);
        match command {
            "EVAL" => eval.arg(&script.text),
            _ => eval.arg(&script.sha),
        };
        if named.is_strict() {
            eval.arg(2).arg(&named.name).arg(self.mark(&named.name));
        } else {
            eval.arg(1).arg(&named.name);
        }
        eval.arg(encoded);
        if named.is_nudge() {
            eval.arg(self.channel()).arg(named.call.key.as_str());
        }
        eval
    }
}

/// Reads the answer of a script that counts on this server.
fn result(
    named: &NamedCall,
    answered: CommandAnswer,
    server: u64,
) -> Result<Option<Done>, StoreError> {
    let origin = answered.origin;
    let value = answered.into_value().map_err(naming(&named.name))?;
    let (answer, now) = wire::answer(&value).ok_or_else(strange)?;
    if named.is_strict() && origin.server != server {
        // The next call counts on the new server, and finds out what was lost.
        return Err(StoreError::new("another redis server has answered").outcome_unknown());
    }
    match answer {
        Answer::Done(answer) => Ok(Some(Done {
            answer,
            at: Reading { now, origin },
        })),
        Answer::Shape => Ok(None),
        Answer::Unrecognized => Err(unrecognized(&named.name)),
    }
}

fn is_unknown_script(answered: &CommandAnswer) -> bool {
    matches!(&answered.value, Value::ServerError(error) if error.code() == "NOSCRIPT")
}
