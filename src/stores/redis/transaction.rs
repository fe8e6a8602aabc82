//! Without scripts: reads a value, changes it here, and writes it in a transaction.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::time::{Instant, sleep, timeout_at};

use super::{Done, Inner, Owned, strange, time, unrecognized};
use crate::backoff;
use crate::quota::HORIZON;
use crate::state::Origin;
use crate::store::StoreError;
use crate::store::redis::servers::{self, Answered, Exclusive, refused};

/// How often a change is tried while other processes change the same key.
const ATTEMPTS: u32 = 50;

/// The longest pause before the second attempt. It doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_micros(400);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

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

impl Inner {
    /// Applies a call to its value.
    pub(super) async fn transact(
        &self,
        call: &Owned,
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
        }
        Err(StoreError::new("other processes changed the same key too often").no_outage())
    }

    /// Tries once. Returns `None` if another process has changed the value.
    async fn attempt(&self, call: &Owned, deadline: Instant) -> Result<Option<Done>, StoreError> {
        let mut connection = self.servers.exclusive(&call.name, deadline).await?;
        let snapshot = match self.snapshot(&mut connection, call, deadline).await {
            // The connection may have broken while it was unused.
            Err(error) if error.is_outage() && connection.is_reused() => return Ok(None),
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
        let applied = call.call().apply(value.as_deref(), known_origin, now);
        let applied = applied.map_err(|error| match error.is_foreign_value() {
            true => unrecognized(&call.name),
            false => error,
        })?;
        let mut pipe = redis::pipe();
        match applied.value {
            None => {
                pipe.cmd("UNWATCH");
            }
            Some(written) => {
                pipe.atomic();
                if applied.expires > now {
                    let lifetime = (applied.expires - now).div_ceil(1_000) + 1;
                    let set = pipe.cmd("SET").arg(&call.name).arg(written);
                    set.arg("PX").arg(lifetime);
                } else {
                    pipe.cmd("DEL").arg(&call.name);
                }
                if call.is_strict() && value.is_none() && since.is_none() {
                    let set = pipe.cmd("SET").arg(self.mark(&call.name)).arg(now);
                    set.arg("PX").arg(HORIZON.as_millis() as u64);
                }
            }
        }
        let answers = connection.run(&pipe, deadline).await?;
        let answer = answers.into_iter().next().ok_or_else(strange)?;
        let is_conflict = match &answer.value {
            Value::Nil => true,
            Value::ServerError(error) => return Err(refused(error)),
            _ => false,
        };
        connection.release();
        if is_conflict {
            return Ok(None);
        }
        if call.is_nudge() {
            // Nobody depends on it.
            let mut pipe = redis::pipe();
            let publish = pipe.cmd("PUBLISH").arg(self.channel());
            publish.arg(call.key.as_str());
            let _ = self.servers.run(&call.name, &pipe, deadline).await;
        }
        let origin = servers::Origin {
            received: answer.origin.received,
            ..origin
        };
        Ok(Some(Done {
            answer: applied.answer,
            now,
            origin,
        }))
    }

    async fn snapshot(
        &self,
        connection: &mut Exclusive,
        call: &Owned,
        deadline: Instant,
    ) -> Result<Snapshot, StoreError> {
        let mut pipe = Pipeline::new();
        pipe.cmd("WATCH").arg(&call.name);
        pipe.cmd("GET").arg(&call.name);
        if self.host_clock.is_none() {
            pipe.cmd("TIME");
        }
        if call.is_strict() {
            pipe.cmd("GET").arg(self.mark(&call.name));
        }
        let answers = connection.run(&pipe, deadline).await?;
        let mut answers = answers.into_iter();
        let mut next = || {
            let Answered { value, origin } = answers.next().ok_or_else(strange)?;
            match value {
                Value::ServerError(error) => Err(match refused(&error) {
                    error if error.is_foreign_value() => unrecognized(&call.name),
                    error => error,
                }),
                value => Ok((value, origin)),
            }
        };
        next()?;
        let (value, origin) = next()?;
        let value: Option<Vec<u8>> = redis::from_redis_value(value).map_err(|_| strange())?;
        let now = match &self.host_clock {
            Some(clock) => clock.now(),
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
