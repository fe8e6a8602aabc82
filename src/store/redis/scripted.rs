//! Runs the scripts: one pipeline for a batch.

use redis::{Cmd, Pipeline, Value};
use tokio::time::Instant;

use super::script::Script;
use super::servers::{Answered, refused};
use super::wire::{self, Answer};
use super::{Done, Inner, Named, strange, unrecognized};
use crate::store::StoreError;

impl Inner {
    /// The result of each call, or `None` if its value has to be changed without a script.
    pub(super) async fn run_scripts(
        &self,
        calls: &[Named],
        deadline: Instant,
    ) -> Result<Vec<Option<Result<Done, StoreError>>>, StoreError> {
        let Some(first) = calls.first() else {
            return Ok(Vec::new());
        };
        let server = self.known_server(calls, deadline).await?;
        let begun = Instant::now();
        let bytes: Vec<_> = calls
            .iter()
            .map(|call| {
                let now = self.host_clock.as_ref().map_or(0, super::HostClock::now);
                wire::call(&call.call, server, now)
            })
            .collect();
        let mut pipe = Pipeline::with_capacity(calls.len());
        for (call, bytes) in calls.iter().zip(&bytes) {
            pipe.add_command(self.command("EVALSHA", call, bytes));
        }
        let mut answers = self.servers.run(&first.name, &pipe, deadline).await?;
        let unknown: Vec<_> = (0..answers.len())
            .filter(|&place| is_unknown_script(&answers[place].value))
            .collect();
        if !unknown.is_empty() {
            // `EVAL` also loads the script. It cannot miss it, so there is no third attempt.
            let mut pipe = Pipeline::with_capacity(unknown.len());
            for &place in &unknown {
                pipe.add_command(self.command("EVAL", &calls[place], &bytes[place]));
            }
            let again = self.servers.run(&first.name, &pipe, deadline).await?;
            for (&place, answer) in unknown.iter().zip(again) {
                answers[place] = answer;
            }
        }
        let results = calls.iter().zip(answers);
        let results = results.map(|(call, mut answer)| {
            if self.host_clock.is_some() {
                // The clock was read before the call was sent.
                answer.origin.sent = begun;
            }
            self.read(call, answer, server)
        });
        Ok(results.collect())
    }

    /// The number of the server to which strict calls go; 0 without them.
    async fn known_server(&self, calls: &[Named], deadline: Instant) -> Result<u64, StoreError> {
        let Some(strict) = calls.iter().find(|call| call.is_strict()) else {
            return Ok(0);
        };
        let shard = self.servers.shard(&strict.name);
        let known = self.known_servers.lock().get(&shard).copied();
        if let Some(server) = known {
            return Ok(server);
        }
        let (_, origin) = self.ping(&strict.name, deadline).await?;
        self.known_servers.lock().insert(shard, origin.server);
        Ok(origin.server)
    }

    fn command(&self, command: &str, call: &Named, bytes: &[u8]) -> Cmd {
        let script = Script::of(call.call.policy.counters());
        let mut eval = redis::cmd(command);
        match command {
            "EVAL" => eval.arg(&script.text),
            _ => eval.arg(&script.sha),
        };
        if call.is_strict() {
            eval.arg(2).arg(&call.name).arg(self.mark(&call.name));
        } else {
            eval.arg(1).arg(&call.name);
        }
        eval.arg(bytes);
        if call.is_nudge() {
            eval.arg(self.channel()).arg(call.call.key.as_str());
        }
        eval
    }

    fn read(
        &self,
        call: &Named,
        answered: Answered,
        server: u64,
    ) -> Option<Result<Done, StoreError>> {
        let Answered { value, origin } = answered;
        if let Value::ServerError(error) = &value {
            // A value that was cut off.
            let is_cut = error.details().is_some_and(|it| it.contains("too short"));
            let explained = refused(error);
            let is_unrecognized = is_cut || explained.is_unrecognized_value();
            return Some(Err(if is_unrecognized {
                unrecognized(&call.name)
            } else {
                explained
            }));
        }
        let Some((answer, now)) = wire::answer(&value) else {
            return Some(Err(strange()));
        };
        if call.is_strict() && origin.server != server {
            // The next call is answered by the number of the new server, and finds out what was lost.
            let shard = self.servers.shard(&call.name);
            self.known_servers.lock().insert(shard, origin.server);
            let error = StoreError::new("another redis server has answered");
            return Some(Err(error.outcome_unknown()));
        }
        match answer {
            Answer::Done(answer) => Some(Ok(Done {
                answer,
                now,
                origin,
            })),
            Answer::Shape => None,
            Answer::Unrecognized => Some(Err(unrecognized(&call.name))),
        }
    }
}

fn is_unknown_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "NOSCRIPT")
}
