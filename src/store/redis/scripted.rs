//! Runs the scripts: one pipeline for a batch.

use redis::{Cmd, Pipeline};
use tokio::time::Instant;

use super::script::Script;
use super::servers::CommandAnswer;
use super::wire::{self, Answer, Encoded};
use super::{Done, NamedCall, Reading, RedisStore, naming, strange, unrecognized};
use crate::store::StoreError;

/// The most keys of one script call, as no other command runs until it has ended.
const MOST_KEYS: usize = 16;

impl RedisStore {
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
            let now = self.host_clock.as_ref().map_or(0, |clock| clock.now());
            wire::call(&named.call, server, now)
        });
        let encoded: Vec<_> = encoded.collect();
        let mut answers = vec![None; calls.len()];
        let places: Vec<_> = (0..calls.len()).collect();
        // In a cluster, the keys of a script have to be in one slot.
        let most = match self.servers.slot_tag(&first.name) {
            None => MOST_KEYS,
            Some(_) => 1,
        };
        let share = |&one: &usize, &other: &usize| {
            !encoded[one].is_single && encoded[one].head == encoded[other].head
        };
        let groups = places.chunk_by(share).flat_map(|group| group.chunks(most));
        let shard = self.servers.shard(&first.name);
        let commands = groups.map(|group| {
            let script = Script::of(calls[group[0]].call.policy.counters());
            // The text with the first call saves the round trip of a refusal.
            match self.loaded.lock().insert((shard, &script.sha)) {
                true => ("EVAL", group),
                false => ("EVALSHA", group),
            }
        });
        let mut commands: Vec<(&str, &[usize])> = commands.collect();
        while !commands.is_empty() {
            let mut pipe = Pipeline::with_capacity(commands.len());
            for (command, group) in &commands {
                pipe.add_command(self.command(command, calls, &encoded, group));
            }
            let latest = self.run(None, &first.name, &pipe, deadline).await?;
            let mut repeated = Vec::new();
            for ((command, group), answer) in commands.into_iter().zip(latest) {
                if command == "EVALSHA" && is_unknown_script(&answer) {
                    // This also loads the script, and cannot miss it.
                    repeated.push(("EVAL", group));
                } else if group.len() > 1 && answer.refusal().is_some_and(|it| !it.is_outage()) {
                    // A value is damaged, or the keys are in several slots. The next calls take back grants that were
                    // made already.
                    repeated.extend(group.chunks(1).map(|one| ("EVALSHA", one)));
                } else {
                    for (&place, answer) in group.iter().zip(answer.each(group.len())) {
                        answers[place] = Some(answer);
                    }
                }
            }
            commands = repeated;
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

    fn command(
        &self,
        command: &str,
        calls: &[NamedCall],
        encoded: &[Encoded],
        group: &[usize],
    ) -> Cmd {
        let first = &calls[group[0]];
        let script = Script::of(first.call.policy.counters());
        let mut eval = redis::cmd(command);
        match command {
            "EVAL" => eval.arg(&script.text),
            _ => eval.arg(&script.sha),
        };
        let mark = first.is_strict().then(|| self.mark(&first.name));
        eval.arg(group.len() + mark.iter().len());
        for &place in group {
            eval.arg(&calls[place].name);
        }
        eval.arg(mark).arg(&encoded[group[0]].head);
        for &place in group {
            eval.arg(&encoded[place].rest);
        }
        if first.call.may_nudge() {
            eval.arg(self.channel()).arg(first.call.key.as_str());
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
    let (answer, now) = wire::answer(&value, named.call.policy.counters()).ok_or_else(strange)?;
    if named.is_strict() && origin.server != server {
        // The next call counts on the new server, and finds out what was lost.
        return Err(
            StoreError::new("the call was answered by a new redis server").outcome_unknown(),
        );
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
    let error = answered.server_error();
    error.is_some_and(|error| error.code() == "NOSCRIPT")
}
