//! Reads a value, changes it here, and writes it unless another process has changed it in between.
//!
//! Without scripts, each call does so, in a transaction. With scripts, calls do so if the value was written under quotas
//! of other kinds, or if a log in it is full; a script then compares and writes it.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use tokio::time::{Instant, sleep, timeout_at};

use super::servers::{Exclusive, exclusive};
use super::{Done, LONGEST_TIMEOUT, NamedCall, Reading, RedisStore, naming, strange};
use crate::algorithm::State;
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

impl RedisStore {
    /// A connection for a transaction; `None` with scripts.
    pub(super) async fn exclusive(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<Exclusive>, StoreError> {
        match self.scripting {
            true => Ok(None),
            false => exclusive(&self.servers, name, deadline).await.map(Some),
        }
    }

    /// Applies a call to its value.
    pub(super) async fn transact(
        &self,
        named: &NamedCall,
        deadline: Instant,
    ) -> Result<Done, StoreError> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&named.name);
        let turn = self.turns[hash as usize % self.turns.len()].lock();
        let begun = Instant::now();
        let Ok(_turn) = timeout_at(deadline, turn).await else {
            let many = "too many calls at the same time: allow scripts, or raise the timeout";
            return Err(StoreError::new(many).conflict());
        };
        // The server has had no part in the wait.
        let deadline = (deadline + begun.elapsed()).min(begun + LONGEST_TIMEOUT);
        let mut conflict = StoreError::new(
            "other processes changed the same key too often: allow scripts, or raise the timeout",
        )
        .conflict();
        let (mut script, mut took) = (None, Duration::ZERO);
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                let pause = backoff::before(attempt, FIRST_PAUSE, LONGEST_PAUSE);
                // The server would seem to be out if the deadline cut an attempt short.
                if Instant::now() + pause + took >= deadline {
                    break;
                }
                sleep(pause).await;
            }
            let mut begun = Instant::now();
            let done = self.attempt(named, script.take(), deadline, &mut begun);
            let done = done.await;
            took = begun.elapsed();
            match done {
                Ok(Break(done)) => return Ok(done),
                Ok(Continue(again)) => script = again,
                // The slot of the key moves.
                Err(error) if error.is_conflict() && !error.is_outcome_unknown() => {
                    conflict = error;
                }
                // The server has answered before, so it is not out: there was not enough time.
                Err(error) if attempt > 0 && error.is_outage() && Instant::now() >= deadline => {
                    return Err(match error.is_outcome_unknown() {
                        true => conflict.outcome_unknown(),
                        false => conflict,
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Err(conflict)
    }

    /// Tries once, by a script first if there is one. Breaks with the answer, or continues if it has to be tried again, with
    /// the call for the script if there are scripts.
    async fn attempt(
        &self,
        named: &NamedCall,
        script: Option<NamedCall>,
        deadline: Instant,
        begun: &mut Instant,
    ) -> Result<ControlFlow<Done, Option<NamedCall>>, StoreError> {
        if let Some(script) = script {
            let results = self.run_scripts(&[script], deadline).await?;
            if let Some(result) = results.into_iter().flatten().next() {
                return result.map(Break);
            }
        }
        let NamedCall { name, call } = named;
        let exclusive = self.exclusive(name, deadline).await?;
        // The next attempt opens no connection.
        *begun = Instant::now();
        let is_reused = exclusive.as_ref().is_some_and(|it| it.is_reused);
        let (mut servers, mut pipe) = (&*self.servers, Pipeline::new());
        if let Some(connection) = &exclusive {
            servers = connection;
            // Fails without the right to `MULTI`: a transaction's commands would be executed one by one.
            pipe.cmd("MULTI").cmd("EXEC").cmd("WATCH").arg(name);
        }
        let skipped = pipe.len();
        pipe.get(name);
        if named.is_strict() {
            pipe.get(self.mark(name));
        }
        let read = self.read(servers, name, pipe, deadline).await;
        let (mut values, Reading { now, mut origin }): (Vec<Value>, _) = match read {
            // The connection may have broken while it was unused.
            Err(error) if is_reused && error.is_outage() && Instant::now() < deadline => {
                return Ok(Continue(None));
            }
            // The slot moves. The connection may still watch the key, until the `EXEC` above begins the next attempt on it.
            Err(error) if error.is_conflict() && !error.is_outcome_unknown() => {
                if let Some(connection) = exclusive {
                    connection.release();
                }
                return Err(error);
            }
            read => read?,
        };
        // The value, and the mark or nothing.
        values.drain(..skipped);
        values.resize(2, Value::Nil);
        let contents = redis::from_redis_value(Value::Array(values)).map_err(|_| strange())?;
        let (value, mark): (Option<Vec<u8>>, Option<Vec<u8>>) = contents;
        let server = origin.server;
        let since = mark.as_deref().and_then(|mark| {
            let since = mark.strip_suffix(&server.to_le_bytes())?;
            str::from_utf8(since).ok()?.parse().ok()
        });
        let since = since.filter(|&since: &u64| since <= now);
        let known_since = since.unwrap_or(now);
        let applied = call.apply_strict(value.as_deref(), now, server, known_since);
        let (answer, written) = applied.map_err(naming(name))?;
        // The answer is nil if the value has changed.
        let mut pipe = redis::pipe();
        if let Some((new, expires)) = written {
            let mut write = Cmd::new();
            if exclusive.is_none() {
                write.arg("EVAL").arg(SWAP).arg(1).arg(name);
                write.arg(value.as_deref().unwrap_or_default());
            }
            match expires.checked_sub(now) {
                None | Some(0) => write.arg("DEL").arg(name),
                Some(left) => {
                    write.arg("SET").arg(name).arg(new);
                    write.arg("PX").arg(left.div_ceil(1_000) + 1)
                }
            };
            pipe.add_command(write);
            if exclusive.is_some() {
                pipe.atomic();
                if named.is_strict() && since.is_none() {
                    let set = pipe.cmd("SET").arg(self.mark(name));
                    set.arg([now.to_string().as_bytes(), &server.to_le_bytes()].concat());
                    set.arg("PX").arg(HORIZON.as_millis() as u64);
                }
            }
        } else if exclusive.is_some() {
            pipe.cmd("UNWATCH");
        }
        let answers = servers.run(name, &pipe, deadline).await?;
        let mut has_changed = false;
        if let Some(answer) = answers.into_iter().next() {
            origin.received = answer.origin.received;
            has_changed = answer.into_value()? == Value::Nil;
        }
        if let Some(connection) = exclusive {
            connection.release();
        }
        if has_changed {
            let again = self.scripting.then(|| for_script(named, value.as_deref()));
            return Ok(Continue(again));
        }
        Ok(Break((answer, Reading { now, origin })))
    }
}

/// The call for a script. The value may be one that a script can change, or differ in the shape of a log only.
fn for_script(named: &NamedCall, value: Option<&[u8]>) -> NamedCall {
    let mut call = named.clone();
    if let Some(state) = value.and_then(|value| State::decode(value).ok())
        && let Some(policy) = named.call.policy.stored_like(&state.counters)
    {
        call.call.policy = Arc::new(policy);
    }
    call
}
