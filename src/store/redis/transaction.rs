//! Without scripts: reads the state, changes it here, and writes it back in a transaction.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Pipeline, RedisResult, Value};
use tokio::time::{Instant, sleep, timeout_at};

use super::failure::{Failure, explain_look};
use super::host_clock::HostClock;
use super::lease::Lease;
use super::server::Server;
use crate::algorithm::ledger::Ledger;
use crate::algorithm::{Rule, state};
use crate::backoff;
use crate::quota::HORIZON;
use crate::store::StoreError;

/// How often a change is tried while others change the same key.
const ATTEMPTS: u32 = 50;

/// The longest pause before the second attempt; it doubles from attempt to attempt.
const FIRST_PAUSE: Duration = Duration::from_micros(400);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Keys that fall into one of so many groups take turns.
const TURNS: usize = 64;

/// Changes the state of keys by optimistic transactions: `WATCH`, then `MULTI` and `EXEC`, and again
/// if others were faster.
///
/// A connection watches for one transaction at a time, so each runs on one of its own. Those of one key
/// take turns, so that only other processes get into their way.
pub(super) struct Transactions {
    server: Arc<dyn Server>,
    /// In place of the server's.
    clock: Option<Arc<HostClock>>,
    turns: [tokio::sync::Mutex<()>; TURNS],
    hasher: RandomState,
}

/// What stands under the names, and when.
struct Snapshot {
    now: u64,
    values: Vec<Option<Vec<u8>>>,
}

impl Transactions {
    /// On a server to which further connections can be made.
    pub(super) fn new(server: Arc<dyn Server>, clock: Option<Arc<HostClock>>) -> Self {
        Self {
            server,
            clock,
            turns: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
            hasher: RandomState::new(),
        }
    }

    /// Changes what stands under the names, those of the free slots and of each rule's state.
    pub(super) async fn change<T>(
        &self,
        names: &[String],
        rules: &[Rule],
        deadline: Instant,
        mut change: impl FnMut(&mut Ledger, u64) -> T,
    ) -> Result<T, StoreError> {
        let change = |ledger: &mut Ledger, now, _born| change(ledger, now);
        self.change_of_a_known_age(names, None, rules, deadline, change)
            .await
    }

    /// The same, told when the store was born, by what stands under that name. If nothing does, that is
    /// now, as for the scripts.
    pub(super) async fn change_of_a_known_age<T>(
        &self,
        names: &[String],
        born: Option<&str>,
        rules: &[Rule],
        deadline: Instant,
        mut change: impl FnMut(&mut Ledger, u64, u64) -> T,
    ) -> Result<T, StoreError> {
        let all: Vec<&str> = names.iter().map(String::as_str).chain(born).collect();
        let turn = &self.turns[self.hasher.hash_one(names) as usize % TURNS];
        let turn = timeout_at(deadline, turn.lock()).await;
        let busy = |_| {
            let error = "others of this process were busy with the same key for too long";
            StoreError::new(error).no_outage()
        };
        let _turn = turn.map_err(busy)?;
        let place = self.server.place(&names[0]);
        let no_way = || StoreError::new("there is no way to connect to redis").no_outage();
        let opener = self.server.opener().ok_or_else(no_way)?;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                sleep(backoff::before(attempt, FIRST_PAUSE, LONGEST_PAUSE)).await;
            }
            let mut lease = opener.lease(place, deadline).await?;
            let clock = self.clock.as_deref();
            let mut snapshot = match snapshot(&mut lease, &all, clock, deadline).await {
                Ok(snapshot) => snapshot,
                Err(failure) if opener.has_moved(place, &failure) => continue,
                // There is no harm in asking again.
                Err(failure) if failure.is_lost() && lease.is_used() => continue,
                // Nothing is written yet.
                Err(failure) => return Err(failure.explain_look()),
            };
            let mut written = redis::pipe();
            written.atomic();
            let since = born.map_or(0, |name| snapshot.born(name, &mut written));
            let mut ledger = read(names, rules, &snapshot.values, snapshot.now)?;
            let answer = change(&mut ledger, snapshot.now, since);
            let writes = writes(names, &snapshot, &ledger, written);
            // If nothing is to be written, what was read may be of several moments. That is no harm: a
            // slot that is granted is written, and a wait is as it would have been at one of them.
            let written = writes.is_empty() || {
                match lease.pipe::<Value>(&writes, deadline).await {
                    Ok(answer) => !matches!(answer, Value::Nil),
                    Err(failure) if opener.has_moved(place, &failure) => continue,
                    Err(failure) => return Err(failure.explain()),
                }
            };
            lease.give_back();
            if written {
                return Ok(answer);
            }
        }
        Err(StoreError::new("others changed the same key too often").no_outage())
    }
}

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactions").finish_non_exhaustive()
    }
}

/// What a look at the names at one moment shows; whatever `look` changes is not written.
pub(super) async fn look<T>(
    server: &dyn Server,
    names: &[String],
    rules: &[Rule],
    clock: Option<&HostClock>,
    deadline: Instant,
    look: impl FnOnce(&mut Ledger, u64) -> T,
) -> Result<T, StoreError> {
    let mut pipe = redis::pipe();
    pipe.atomic();
    let reads = with_reads(&mut pipe, names, clock.is_none());
    let answer = server.look(server.place(&names[0]), reads, deadline).await;
    let answer = answer.map_err(Failure::explain_look)?;
    let snapshot = Snapshot::of(answer.value, clock).map_err(explain_look)?;
    let mut ledger = read(names, rules, &snapshot.values, snapshot.now)?;
    Ok(look(&mut ledger, snapshot.now))
}

/// Reads on a connection that watches from then on.
async fn snapshot(
    lease: &mut Lease,
    names: &[&str],
    clock: Option<&HostClock>,
    deadline: Instant,
) -> Result<Snapshot, Failure> {
    let mut pipe = redis::pipe();
    // What an earlier look watched is of no interest.
    pipe.cmd("UNWATCH").ignore();
    pipe.cmd("WATCH").arg(names).ignore();
    let reads = with_reads(&mut pipe, names, clock.is_none());
    let answers = lease.pipe(reads, deadline).await?;
    Snapshot::of(answers, clock).map_err(Failure::Answered)
}

pub(super) fn with_reads<'a, N: redis::ToRedisArgs>(
    pipe: &'a mut Pipeline,
    names: &[N],
    time: bool,
) -> &'a mut Pipeline {
    if time {
        pipe.cmd("TIME");
    }
    for name in names {
        pipe.cmd("GET").arg(name);
    }
    pipe
}

impl Snapshot {
    /// Since when the store knows of everything, which stands under this name, read behind all others.
    /// Written if nothing does, or if the clock was set back since.
    fn born(&mut self, name: &str, writes: &mut Pipeline) -> u64 {
        let raw = self.values.pop().flatten();
        let born = raw.and_then(|raw| str::from_utf8(&raw).ok()?.parse().ok());
        if let Some(born) = born.filter(|&born| born <= self.now) {
            return born;
        }
        let lifetime = HORIZON.as_millis() as u64;
        let set = writes.cmd("SET").arg(name).arg(self.now);
        set.arg("PX").arg(lifetime).ignore();
        self.now
    }

    fn of(answers: Vec<Value>, clock: Option<&HostClock>) -> RedisResult<Self> {
        let mut answers = answers.into_iter();
        Ok(Self {
            now: now(clock, &mut answers)?,
            values: answers
                .map(Option::from_redis_value)
                .collect::<Result<_, _>>()?,
        })
    }
}

/// The time in microseconds, by the first of these answers, to `TIME`; or by this clock, where the server was not
/// asked.
pub(super) fn now(
    clock: Option<&HostClock>,
    answers: &mut impl Iterator<Item = Value>,
) -> RedisResult<u64> {
    if let Some(clock) = clock {
        return Ok(clock.now());
    }
    let answer = answers.next().unwrap_or(Value::Nil).extract_error()?;
    let (seconds, micros) = <(u64, u64)>::from_redis_value(answer)?;
    Ok(seconds * 1_000_000 + micros)
}

/// The ledger whose values stand under these names.
pub(super) fn read(
    names: &[String],
    rules: &[Rule],
    values: &[Option<Vec<u8>>],
    now: u64,
) -> Result<Ledger, StoreError> {
    Ledger::read(rules, values, now).map_err(|state::Foreign(place)| foreign(&names[place]))
}

/// What stands under this name makes no sense.
pub(super) fn foreign(name: &str) -> StoreError {
    let which = format!("the value of {name} was not written by a throttle");
    let error = StoreError::new("redis holds what no throttle wrote");
    error.caused_by(which).foreign_value()
}

/// Writes what has changed, and nothing if nothing has. What has not lives as long as the rest.
fn writes(
    names: &[String],
    snapshot: &Snapshot,
    ledger: &Ledger,
    mut writes: Pipeline,
) -> Pipeline {
    let mut unchanged = redis::pipe();
    for ((name, before), after) in names.iter().zip(&snapshot.values).zip(ledger.written()) {
        match after {
            Some((raw, expires)) => {
                let lifetime = expires.saturating_sub(snapshot.now).div_ceil(1_000) + 1;
                if before.as_ref() == Some(&raw) {
                    unchanged.cmd("PEXPIRE").arg(name).arg(lifetime).ignore();
                } else {
                    let set = writes.cmd("SET").arg(name).arg(raw);
                    set.arg("PX").arg(lifetime).ignore();
                }
            }
            None if before.is_some() => {
                writes.cmd("DEL").arg(name).ignore();
            }
            None => {}
        }
    }
    if !writes.is_empty() {
        for command in unchanged.cmd_iter() {
            writes.add_command(command.clone()).ignore();
        }
    }
    writes
}
