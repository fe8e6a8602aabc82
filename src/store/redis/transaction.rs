//! Reads a value, changes it here, and writes it unless another process has changed it in between.
//!
//! Without scripts, each call does so, in a transaction. With scripts, calls do so if the value was written under quotas
//! of other kinds, or if a ring in it is full; a script then compares and writes it.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::time::{Instant, sleep, timeout_at};

use super::servers::{self, Answered, Exclusive, refused};
use super::{Done, Inner, Named, strange, time, unrecognized};
use crate::algorithm::Origin;
use crate::backoff;
use crate::quota::HORIZON;
use crate::store::StoreError;

/// How often a change is tried while other processes change the same key.
const ATTEMPTS: u32 = 50;

/// The longest pause before the second attempt. It doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_micros(400);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// KEYS: the value, and the mark to set, if any. ARGV: the value as it was read, or ''; the new one, or '' to delete it;
/// its lifetime in milliseconds; the content of the mark, and its lifetime. Returns false if the value has changed.
const SWAP: &str = "
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return false end
if ARGV[2] == '' then redis.call('DEL', KEYS[1])
else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
if KEYS[2] then redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5]) end
return 1";

/// Calls of this process for one key take turns, so that only other processes cause conflicts.
pub(super) struct Turns {
    turns: [tokio::sync::Mutex<()>; 64],
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            turns: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            hasher: RandomState::new(),
        }
    }
}

impl Turns {
    fn of(&self, name: &str) -> &tokio::sync::Mutex<()> {
        &self.turns[self.hasher.hash_one(name) as usize % self.turns.len()]
    }
}

/// A value that is watched, and when it was read.
struct Snapshot {
    value: Option<Vec<u8>>,
    since: Option<u64>,
    now: u64,
    origin: servers::Origin,
}

/// A change of a value that was read.
struct Write<'a> {
    name: &'a str,
    /// Empty if there was none.
    old: &'a [u8],
    /// Empty to delete it.
    new: Vec<u8>,
    /// In milliseconds.
    lifetime: u64,
    /// The name of a mark to set.
    mark: Option<String>,
    now: u64,
}

impl Write<'_> {
    /// The change as a transaction; its answer is nil if the value was changed since it was watched.
    fn exec(&self) -> Pipeline {
        let mut pipe = redis::pipe();
        pipe.atomic();
        match &self.new[..] {
            [] => pipe.cmd("DEL").arg(self.name),
            new => pipe
                .cmd("SET")
                .arg(self.name)
                .arg(new)
                .arg("PX")
                .arg(self.lifetime),
        };
        if let Some(mark) = &self.mark {
            let set = pipe.cmd("SET").arg(mark).arg(self.now);
            set.arg("PX").arg(HORIZON.as_millis() as u64);
        }
        pipe
    }

    /// The change as a script; its answer is nil if the value was changed since it was read.
    fn swap(&self) -> Pipeline {
        let mut pipe = redis::pipe();
        let eval = pipe.cmd("EVAL").arg(SWAP);
        eval.arg(1 + usize::from(self.mark.is_some()))
            .arg(self.name);
        eval.arg(self.mark.as_deref());
        eval.arg(self.old).arg(&self.new).arg(self.lifetime);
        eval.arg(self.now).arg(HORIZON.as_millis() as u64);
        pipe
    }
}

impl Inner {
    /// Applies a call to its value.
    pub(super) async fn transact(
        &self,
        call: &Named,
        deadline: Instant,
    ) -> Result<Done, StoreError> {
        let _turn = timeout_at(deadline, self.turns.of(&call.name).lock())
            .await
            .map_err(|late| StoreError::new("redis did not answer in time").caused_by(late))?;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                let pause = backoff::before(attempt, FIRST_PAUSE, LONGEST_PAUSE);
                if Instant::now() + pause >= deadline {
                    break;
                }
                sleep(pause).await;
            }
            if let Some(done) = self.attempt(call, deadline).await? {
                return Ok(done);
            }
            if self.options.scripting {
                // The other process may have written what a script can change.
                let calls = std::slice::from_ref(call);
                let results = self.run_scripts(calls, deadline).await?;
                if let Some(result) = results.into_iter().flatten().next() {
                    return result;
                }
            }
        }
        Err(StoreError::new("other processes changed the same key too often").no_outage())
    }

    /// Tries once. Returns `None` if another process has changed the value.
    async fn attempt(&self, call: &Named, deadline: Instant) -> Result<Option<Done>, StoreError> {
        let mut exclusive = match self.options.scripting {
            true => None,
            false => Some(self.servers.exclusive(&call.name, deadline).await?),
        };
        let snapshot = match self.snapshot(exclusive.as_mut(), call, deadline).await {
            // The connection may have broken while it was unused.
            Err(error)
                if error.is_outage() && exclusive.as_ref().is_some_and(Exclusive::is_reused) =>
            {
                return Ok(None);
            }
            snapshot => snapshot?,
        };
        let Snapshot {
            value,
            since,
            now,
            origin,
        } = snapshot;
        let known_origin = Origin {
            server: origin.server,
            since: since.unwrap_or(now),
        };
        let applied = call.call.apply(value.as_deref(), known_origin, now);
        let applied = applied.map_err(|error| match error.is_unrecognized_value() {
            true => unrecognized(&call.name),
            false => error,
        })?;
        let is_marked = call.is_strict() && value.is_none() && since.is_none();
        let mark = is_marked.then(|| self.mark(&call.name));
        let write = applied.value.map(|new| Write {
            name: &call.name,
            old: value.as_deref().unwrap_or_default(),
            new: if applied.expires > now { &new[..] } else { &[] }.to_vec(),
            lifetime: applied.expires.saturating_sub(now).div_ceil(1_000) + 1,
            mark,
            now,
        });
        let answers = match (&mut exclusive, &write) {
            (None, None) => Vec::new(),
            (None, Some(write)) => {
                let swap = write.swap();
                self.servers.run(&call.name, &swap, deadline).await?
            }
            (Some(connection), None) => {
                let mut pipe = redis::pipe();
                connection.run(pipe.cmd("UNWATCH"), deadline).await?
            }
            (Some(connection), Some(write)) => connection.run(&write.exec(), deadline).await?,
        };
        if let Some(connection) = exclusive {
            connection.release();
        }
        let mut received = origin.received;
        if let Some(answer) = answers.into_iter().next() {
            received = answer.origin.received;
            match &answer.value {
                Value::Nil => return Ok(None),
                Value::ServerError(error) => return Err(refused(error)),
                _ => {}
            }
        }
        if call.is_nudge() && write.is_some() {
            let mut pipe = redis::pipe();
            let publish = pipe.cmd("PUBLISH").arg(self.channel());
            publish.arg(call.call.key.as_str());
            let (servers, name) = (self.servers.clone(), call.name.clone());
            // The answer does not wait for it. It may fail, because nothing depends on it.
            tokio::spawn(async move { servers.run(&name, &pipe, deadline).await });
        }
        Ok(Some(Done {
            answer: applied.answer,
            now,
            origin: servers::Origin { received, ..origin },
        }))
    }

    /// Reads a value, and watches it on an exclusive connection.
    async fn snapshot(
        &self,
        exclusive: Option<&mut Exclusive>,
        call: &Named,
        deadline: Instant,
    ) -> Result<Snapshot, StoreError> {
        let mut pipe = Pipeline::new();
        if exclusive.is_some() {
            pipe.cmd("WATCH").arg(&call.name);
        }
        pipe.cmd("GET").arg(&call.name);
        if self.host_clock.is_none() {
            pipe.cmd("TIME");
        }
        if call.is_strict() {
            pipe.cmd("GET").arg(self.mark(&call.name));
        }
        let is_watched = exclusive.is_some();
        let answers = match exclusive {
            Some(connection) => connection.run(&pipe, deadline).await?,
            None => self.servers.run(&call.name, &pipe, deadline).await?,
        };
        let mut answers = answers.into_iter();
        let mut next = || {
            let Answered { value, origin } = answers.next().ok_or_else(strange)?;
            match value {
                Value::ServerError(error) => Err(match refused(&error) {
                    error if error.is_unrecognized_value() => unrecognized(&call.name),
                    error => error,
                }),
                value => Ok((value, origin)),
            }
        };
        if is_watched {
            next()?;
        }
        let (value, mut origin) = next()?;
        let value: Option<Vec<u8>> = redis::from_redis_value(value).map_err(|_| strange())?;
        let now = match &self.host_clock {
            Some(clock) => clock.read_after(&mut origin),
            None => time(&next()?.0)?,
        };
        let since = if call.is_strict() {
            let since: Option<u64> = redis::from_redis_value(next()?.0).map_err(|_| strange())?;
            since.filter(|&since| since <= now)
        } else {
            None
        };
        Ok(Snapshot {
            value,
            since,
            now,
            origin,
        })
    }
}
