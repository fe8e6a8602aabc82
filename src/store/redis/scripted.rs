//! Runs the scripts: one pipeline for a batch.

use std::ops::Range;

use redis::{Cmd, Pipeline, ServerError, Value};
use tokio::time::Instant;

use super::script::Script;
use super::servers::AnswerOrigin;
use super::wire::{self, Answer};
use super::{Done, NamedCall, Reading, RedisStore, naming, strange, unrecognized};
use crate::algorithm::Writer;
use crate::store::StoreError;

/// The most keys of one script call, as no other command runs until it has ended.
const MOST_KEYS: usize = 64;

/// The bytes of most calls, without the name of the key.
const CALL_BYTES: usize = 64;

/// Calls that share a script call, by their places.
struct Group {
    head: Writer,
    script: &'static Script,
    /// The script is sent as text.
    is_new: bool,
    places: Range<usize>,
}

impl Group {
    /// One of the calls, whose script is known to the server.
    fn single(&self, place: usize) -> Self {
        Self {
            head: Writer(self.head.0.clone()),
            script: self.script,
            is_new: false,
            places: place..place + 1,
        }
    }
}

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
        let mut groups = self.groups(calls);
        let mut results: Vec<_> = calls.iter().map(|_| None).collect();
        while !groups.is_empty() {
            let mut pipe = Pipeline::with_capacity(groups.len());
            for group in &groups {
                pipe.add_command(self.command(group, &calls[group.places.clone()], server));
            }
            let latest = self.run(None, &first.name, &pipe, deadline).await?;
            let mut repeated = Vec::new();
            for (group, mut answer) in groups.into_iter().zip(latest) {
                let places = group.places.clone();
                let is_unknown = |error: &ServerError| error.code() == "NOSCRIPT";
                if !group.is_new && answer.server_error().is_some_and(is_unknown) {
                    // The text also loads the script, and cannot miss it.
                    let is_new = true;
                    repeated.push(Group { is_new, ..group });
                } else if places.len() > 1 && answer.refusal().is_some_and(|it| !it.is_outage()) {
                    // A value is damaged, or the keys are in several slots. The next calls take back grants that were
                    // made already.
                    repeated.extend(places.map(|place| group.single(place)));
                } else {
                    if self.host_clock.is_some() {
                        // The clock was read before the call was sent.
                        answer.origin.sent = begun;
                    }
                    let (origin, value) = (answer.origin, answer.into_value());
                    let latest = answers(&calls[places.clone()], origin, &value, server);
                    for (place, answer) in places.zip(latest) {
                        results[place] = match answer {
                            Ok((Answer::Done(taken), reading)) => Some(Ok((taken, reading))),
                            Ok((Answer::Shape, _)) => None,
                            Ok((Answer::Unrecognized, _)) => {
                                Some(Err(unrecognized(&calls[place].name)))
                            }
                            Ok((Answer::Later, _)) => {
                                repeated.push(group.single(place));
                                None
                            }
                            Err(error) => Some(Err(error)),
                        };
                    }
                }
            }
            groups = repeated;
        }
        Ok(results)
    }

    /// The calls, as far as they may share script calls.
    fn groups(&self, calls: &[NamedCall]) -> Vec<Group> {
        let name = calls.first().map_or("", |named| &named.name);
        // In a cluster, the keys of a script have to be in one slot.
        let most = match self.servers.slot_suffix(name).is_empty() {
            true => MOST_KEYS,
            false => 1,
        };
        let shard = self.servers.shard(name);
        let mut groups: Vec<Group> = Vec::with_capacity(calls.len().div_ceil(most));
        let mut spare = Writer::default();
        for (place, NamedCall { call, .. }) in calls.iter().enumerate() {
            let now = self.host_clock.as_ref().map_or(0, |clock| clock.now());
            let mut head = std::mem::take(&mut spare);
            wire::head(&mut head, call, now);
            if let Some(last) = groups.last_mut()
                && last.places.len() < most
                && last.head.0 == head.0
                && !wire::is_single(call)
            {
                (last.places.end, spare) = (place + 1, head);
                continue;
            }
            let script = Script::of(call.policy.counters());
            groups.push(Group {
                head,
                script,
                // The text with the first call saves the round trip of a refusal.
                is_new: self.loaded.lock().insert((shard, &script.sha)),
                places: place..place + 1,
            });
        }
        groups
    }

    fn command(&self, group: &Group, calls: &[NamedCall], server: u64) -> Cmd {
        let first = &calls[0];
        let names: usize = calls.iter().map(|named| named.name.len()).sum();
        let bytes = 2 * CALL_BYTES + names + calls.len() * CALL_BYTES;
        let mut eval = Cmd::with_capacity(2 * calls.len() + 7, bytes);
        match group.is_new {
            true => eval.arg("EVAL").arg(&group.script.text),
            false => eval.arg("EVALSHA").arg(&group.script.sha),
        };
        let mark = first.is_strict().then(|| self.mark(&first.name));
        eval.arg(calls.len() + mark.iter().len());
        for named in calls {
            eval.arg(&named.name);
        }
        eval.arg(mark).arg(&group.head.0);
        let mut rest = Writer(Vec::with_capacity(CALL_BYTES));
        for named in calls {
            wire::rest(&mut rest, &named.call, server);
            eval.arg(&rest.0);
        }
        if wire::releases(&first.call) {
            eval.arg(self.channel(0)).arg(first.call.key.as_str());
        }
        eval
    }
}

/// Reads the answers of a script that counts on this server.
fn answers<'a>(
    calls: &'a [NamedCall],
    origin: AnswerOrigin,
    value: &'a Result<Value, StoreError>,
    server: u64,
) -> impl Iterator<Item = Result<(Answer, Reading), StoreError>> + 'a {
    let mut read = value.as_ref().ok().and_then(wire::answers);
    calls.iter().map(move |named| {
        if let Err(error) = value {
            return Err(naming(&named.name)(error.clone()));
        }
        let (now, bytes) = read.as_mut().ok_or_else(strange)?;
        let Ok(mut answer) = wire::answer(bytes, named.call.policy.counters()) else {
            // It is unknown where the answers behind it begin.
            read = None;
            return Err(strange());
        };
        if let Answer::Done(taken) = &mut answer
            && wire::releases(&named.call)
        {
            // The script has sent the nudges.
            taken.next.clear();
        }
        let now = *now;
        if named.is_strict() && origin.server != server {
            // The next call counts on the new server, and finds out what was lost.
            return Err(
                StoreError::new("the call was answered by a new redis server").outcome_unknown(),
            );
        }
        Ok((answer, Reading { now, origin }))
    })
}
