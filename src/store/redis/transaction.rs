//! Reads a value, changes it here, and writes it unless another process has changed it in between.
//!
//! Without scripts, each call does so, in a transaction. With scripts, calls do so if the value was written under quotas
//! of other kinds, or if a ring in it is full; a script then compares and writes it.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use redis::{Arg, Pipeline, Value};
use smallvec::SmallVec;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::servers::{AnswerOrigin, CommandAnswer, Exclusive};
use super::{Done, NamedCall, Reading, RedisStore, naming, strange};
use crate::algorithm::{Counter, State};
use crate::backoff;
use crate::quota::HORIZON;
use crate::store::StoreError;

/// How often a change is tried while other processes change the same key.
const ATTEMPTS: u32 = 50;

/// The longest pause before the second attempt. It doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_micros(400);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// KEYS: the value. ARGV: the value as it was read, or ''; the words of the command that writes it. Returns false if
/// the value has changed.
const SWAP: &str = "
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return false end
return redis.call(unpack(ARGV, 2))";

/// Calls of this process for one key take turns, so that only other processes cause conflicts.
pub(super) struct Turns([Mutex<()>; 64]);

impl Default for Turns {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Turns {
    fn of(&self, name: &str) -> &Mutex<()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        &self.0[hash as usize % self.0.len()]
    }
}

enum Attempt {
    Done(Result<Done, StoreError>),
    /// Another process has changed the value, which had these counters.
    Conflict(Option<SmallVec<[Counter; 1]>>),
}

/// A value, as it was read.
struct Snapshot {
    value: Option<Vec<u8>>,
    /// The content of the mark, if the call is strict.
    since: Option<u64>,
    at: Reading,
}

impl RedisStore {
    /// Applies a call to its value.
    pub(super) async fn transact(
        &self,
        named: &NamedCall,
        deadline: Instant,
    ) -> Result<Done, StoreError> {
        let _turn = timeout_at(deadline, self.turns.of(&named.name).lock())
            .await
            .map_err(|late| StoreError::new("redis did not answer in time").caused_by(late))?;
        let conflict = || {
            StoreError::new("other processes changed the same key too often: allow scripts, or raise the timeout").conflict()
        };
        let mut script = None;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                let pause = backoff::before(attempt, FIRST_PAUSE, LONGEST_PAUSE);
                if Instant::now() + pause >= deadline {
                    break;
                }
                sleep(pause).await;
            }
            match self.attempt(named, script.take(), deadline).await {
                Ok(Attempt::Done(result)) => return result,
                Ok(Attempt::Conflict(found)) if self.scripting => {
                    // The value may be one that a script can change, or differ in the shape of a log only.
                    let (name, mut call) = (named.name.clone(), named.call.clone());
                    if let Some(policy) = found.and_then(|found| call.policy.stored_like(&found)) {
                        call.policy = Arc::new(policy);
                    }
                    script = Some(NamedCall { name, call });
                }
                Ok(Attempt::Conflict(_)) => {}
                // The server has answered before: there is no time left.
                Err(error) if attempt > 0 && error.is_outage() => {
                    return Err(match error.is_outcome_unknown() {
                        true => conflict().outcome_unknown(),
                        false => conflict(),
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Err(conflict())
    }

    /// Tries once, by a script first if there is one.
    async fn attempt(
        &self,
        named: &NamedCall,
        script: Option<NamedCall>,
        deadline: Instant,
    ) -> Result<Attempt, StoreError> {
        if let Some(script) = script {
            let results = self.run_scripts(&[script], deadline).await?;
            if let Some(result) = results.into_iter().flatten().next() {
                return Ok(Attempt::Done(result));
            }
        }
        let NamedCall { name, call } = named;
        let exclusive = match self.scripting {
            true => None,
            false => Some(self.servers.exclusive(name, deadline).await?),
        };
        let Snapshot { value, since, at } =
            match self.snapshot(exclusive.as_ref(), named, deadline).await {
                // The connection may have broken while it was unused.
                Err(error)
                    if error.is_outage()
                        && exclusive.as_ref().is_some_and(|it| it.is_reused)
                        && Instant::now() < deadline =>
                {
                    return Ok(Attempt::Conflict(None));
                }
                snapshot => match snapshot? {
                    Some(snapshot) => snapshot,
                    None => return Ok(Attempt::Conflict(None)),
                },
            };
        let Reading { now, origin } = at;
        let (server, known_since) = (origin.server, since.unwrap_or(now));
        let applied = call.apply_strict(value.as_deref(), now, server, known_since);
        let (answer, written) = applied.map_err(naming(name))?;
        let write = written.map(|(new, expires)| {
            if expires <= now {
                return redis::Cmd::del(name);
            }
            let mut write = redis::cmd("SET");
            let lifetime = (expires - now).div_ceil(1_000) + 1;
            write.arg(name).arg(new).arg("PX").arg(lifetime);
            write
        });
        let nudge = call.nudge(&answer).filter(|_| write.is_some());
        // The answer is nil if the value has changed.
        let mut pipe = redis::pipe();
        match (&exclusive, write) {
            (None, None) => {}
            (Some(_), None) => {
                pipe.cmd("UNWATCH");
            }
            (Some(_), Some(write)) => {
                pipe.atomic().add_command(write);
                if named.is_strict() && value.is_none() && since.is_none() {
                    let lifetime = HORIZON.as_millis() as u64;
                    let set = pipe.cmd("SET").arg(self.mark(name)).arg(now);
                    set.arg("PX").arg(lifetime);
                }
            }
            (None, Some(write)) => {
                let swap = pipe.cmd("EVAL").arg(SWAP).arg(1).arg(name);
                swap.arg(value.as_deref().unwrap_or_default());
                for word in write.args_iter() {
                    if let Arg::Simple(word) = word {
                        swap.arg(word);
                    }
                }
            }
        }
        let answers = self.run(exclusive.as_ref(), name, &pipe, deadline).await?;
        if let Some(connection) = exclusive {
            connection.release();
        }
        let mut received = origin.received;
        if let Some(answer) = answers.into_iter().next() {
            received = answer.origin.received;
            if answer.into_value()? == Value::Nil {
                let found = value.filter(|_| self.scripting);
                let found = found.and_then(|value| State::decode(&value).ok());
                return Ok(Attempt::Conflict(found.map(|state| state.counters)));
            }
        }
        if let Some(nudge) = nudge {
            let mut pipe = redis::pipe();
            let publish = pipe.cmd("PUBLISH").arg(self.channel());
            publish.arg(nudge.encode());
            let (servers, name) = (self.servers.clone(), name.clone());
            // The answer does not wait for it. It may fail, because nothing depends on it.
            tokio::spawn(async move { servers.run(&name, &pipe, deadline).await });
        }
        let origin = AnswerOrigin { received, ..origin };
        Ok(Attempt::Done(Ok(Done {
            answer,
            at: Reading { now, origin },
        })))
    }

    /// Reads a value, and watches it on an exclusive connection. Returns `None` if its slot moved before the answer.
    async fn snapshot(
        &self,
        exclusive: Option<&Exclusive>,
        named: &NamedCall,
        deadline: Instant,
    ) -> Result<Option<Snapshot>, StoreError> {
        let name = &named.name;
        let mut pipe = Pipeline::new();
        if exclusive.is_some() {
            pipe.cmd("WATCH").arg(name);
        }
        pipe.get(name);
        if named.is_strict() {
            pipe.get(self.mark(name));
        }
        let (answers, at) = self.read(exclusive, name, pipe, deadline).await?;
        let is_elsewhere = |it: &CommandAnswer| it.origin.connection != at.origin.connection;
        if answers.iter().any(is_elsewhere) {
            return Ok(None);
        }
        let mut values = Vec::with_capacity(answers.len());
        for answer in answers {
            values.push(answer.into_value().map_err(naming(name))?);
        }
        let mut values = values.into_iter().skip(usize::from(exclusive.is_some()));
        let value = values.next().ok_or_else(strange)?;
        let since = values.next().unwrap_or(Value::Nil);
        let since: Option<u64> = redis::from_redis_value(since).map_err(|_| strange())?;
        Ok(Some(Snapshot {
            value: redis::from_redis_value(value).map_err(|_| strange())?,
            since: since.filter(|&since| since <= at.now),
            at,
        }))
    }
}
