//! Runs the scripts: one pipeline for a batch.

use std::ops::Range;

use redis::{Cmd, Pipeline, ServerError};
use tokio::time::Instant;

use super::script::Script;
use super::servers::CommandAnswer;
use super::wire::{self, KeyAnswer};
use super::{Done, NamedCall, Reading, RedisStore, host_time, naming, strange, unrecognized};
use crate::store::StoreError;

/// The most keys of one script call, as no other command runs until it has ended.
const MOST_KEYS: usize = 64;

/// The result of a call, or `None` if its value has to be changed without a script.
type Outcome = Option<Result<Done, StoreError>>;

/// Calls that share a script call, by their places.
#[derive(Clone)]
struct Group {
    head: Vec<u8>,
    script: &'static Script,
    /// The script is sent as text, in case the server does not know it.
    is_text: bool,
    places: Range<usize>,
}

impl Group {
    /// Reads the answer of the script call into the results of its calls. Returns the script calls to run next.
    fn read(
        mut self,
        answer: CommandAnswer,
        calls: &[NamedCall],
        server: u64,
        results: &mut [Outcome],
    ) -> Vec<Self> {
        let places = self.places.clone();
        let is_unknown = |error: &ServerError| error.code() == "NOSCRIPT";
        if !self.is_text && answer.server_error().is_some_and(is_unknown) {
            // The text also loads the script, and cannot miss it.
            self.is_text = true;
            return vec![self];
        }
        // One of the calls, whose script is known to the server.
        let single = |place| Self {
            is_text: false,
            places: place..place + 1,
            ..self.clone()
        };
        if places.len() > 1 && answer.refusal().is_some_and(|it| !it.is_outage()) {
            // A value is damaged, or the keys are in several slots. The next calls take back grants that were made already.
            return places.map(single).collect();
        }
        let (origin, call) = (answer.origin, &calls[places.start]);
        let read = answer.into_value().and_then(|value| {
            if call.is_strict() && origin.server != server {
                // The next call counts on the new server, and finds out what was lost.
                let error = "the call was answered by a new redis server";
                return Err(StoreError::new(error).conflict().outcome_unknown());
            }
            let counters = &call.call.policy.counters;
            wire::answers(&value, places.len(), counters).ok_or_else(strange)
        });
        let (now, answers) = match read {
            Ok(read) => read,
            Err(error) => {
                // All keys are out, or it is the error of the only one.
                results[places].fill(Some(Err(naming(&call.name)(error))));
                return Vec::new();
            }
        };
        let mut later = Vec::new();
        for (place, answer) in places.zip(answers) {
            results[place] = match answer {
                KeyAnswer::Done(mut taken) => {
                    if wire::releases(&call.call) {
                        // The script has sent the nudges.
                        taken.nudged.clear();
                    }
                    Some(Ok((taken, Reading { now, origin })))
                }
                KeyAnswer::NeedsTransaction => None,
                KeyAnswer::Unrecognized => Some(Err(unrecognized(&calls[place].name))),
                KeyAnswer::Later => {
                    later.push(single(place));
                    None
                }
            };
        }
        later
    }
}

impl RedisStore {
    /// The outcome of each call.
    pub(super) async fn run_scripts(
        &self,
        calls: &[NamedCall],
        deadline: Instant,
    ) -> Result<Vec<Outcome>, StoreError> {
        let Some(first) = calls.first() else {
            return Ok(Vec::new());
        };
        let server = match calls.iter().any(NamedCall::is_strict) {
            true => self.servers.server(&first.name, deadline).await?,
            false => 0,
        };
        let begun = Instant::now();
        let mut groups = self.groups(calls);
        let mut results: Vec<_> = calls.iter().map(|_| None).collect();
        while !groups.is_empty() {
            let mut pipe = Pipeline::with_capacity(groups.len());
            for group in &groups {
                pipe.add_command(self.command(group, &calls[group.places.clone()], server));
            }
            let latest = match self.servers.run(&first.name, &pipe, deadline).await {
                Ok(latest) => latest,
                Err(error) => {
                    // Calls that were answered before keep their answers.
                    for group in groups {
                        results[group.places].fill(Some(Err(error.clone())));
                    }
                    break;
                }
            };
            for (group, mut answer) in std::mem::take(&mut groups).into_iter().zip(latest) {
                if !self.server_time {
                    // The clock was read before the call was sent.
                    answer.origin.sent = begun;
                }
                groups.extend(group.read(answer, calls, server, &mut results));
            }
        }
        Ok(results)
    }

    /// The calls, of which there is at least one, as far as they may share script calls.
    fn groups(&self, calls: &[NamedCall]) -> Vec<Group> {
        let shard = self.servers.shard(&calls[0].name);
        // In a cluster, no shard is 0, and the keys of a script have to be in one slot.
        let most = if shard == 0 { MOST_KEYS } else { 1 };
        let mut groups: Vec<Group> = Vec::with_capacity(calls.len().div_ceil(most));
        let now = if self.server_time { 0 } else { host_time() };
        for (place, NamedCall { call, .. }) in calls.iter().enumerate() {
            let head = wire::head(call, now).0;
            if let Some(last) = groups.last_mut()
                && last.places.len() < most
                && last.head == head
                && !wire::is_single(call)
            {
                last.places.end = place + 1;
                continue;
            }
            let script = Script::of(&call.policy.counters);
            groups.push(Group {
                head,
                script,
                // The text with the first call saves the round trip of a refusal.
                is_text: self.loaded.lock().insert((shard, &script.sha)),
                places: place..place + 1,
            });
        }
        groups
    }

    fn command(&self, group: &Group, calls: &[NamedCall], server: u64) -> Cmd {
        let first = &calls[0];
        let mut eval = Cmd::new();
        match group.is_text {
            true => eval.arg("EVAL").arg(&group.script.text),
            false => eval.arg("EVALSHA").arg(&group.script.sha),
        };
        let mark = first.is_strict().then(|| self.mark(&first.name));
        eval.arg(calls.len() + mark.iter().len());
        for named in calls {
            eval.arg(&named.name);
        }
        eval.arg(mark).arg(&group.head);
        for named in calls {
            eval.arg(wire::rest(&named.call, server).0);
        }
        if wire::releases(&first.call) {
            eval.arg(self.channel(0)).arg(first.call.key.as_str());
        }
        eval
    }
}
