//! The shared store: [`RedisStore`].
//!
//! | module | subject |
//! | --- | --- |
//! | `connect`, `handed_in` | ways to connect |
//! | `keys`, `look` | lists stored keys, and shows their state |
//! | `names` | names of values |
//! | `script` | assembles the scripts for a policy |
//! | `wire` | calls and answers as bytes |
//! | `scripted` | runs the scripts |
//! | `transaction` | does without them |

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use hashbrown::HashSet;
use redis::{FromRedisValue, Pipeline, Value};
use tokio::time::Instant;

use self::servers::{AnswerOrigin, CommandAnswer, Servers, Subscription, Topology};
use super::{Answered, Call, Nudge, Operation, Store};
use crate::algorithm::{LANE_BITS, Taken};
use crate::error::BuildError;
use crate::key::Key;
use crate::lock::Mutex;
use crate::policy::name_problem;
use crate::queue::LONGEST_CALL;
use crate::store::{Reply, StoreError};

pub use self::keys::{Keys, StoredKey};
pub use self::look::{KeyState, QuotaState, WaitingProcess};

mod connect;
#[cfg(feature = "redis-1")]
mod handed_in;
mod keys;
mod look;
mod names;
mod script;
mod scripted;
mod servers;
#[cfg(test)]
mod tests;
mod transaction;
mod wire;

/// Keeps state in a Redis or Valkey server of version 6.2 or later, or in a cluster of them, for all processes that
/// use it.
///
/// A batch of calls is one pipeline of scripts. A script serves up to 64 keys, or in a cluster one, by the server's
/// clock. The store needs the [rights](crate::guide::redis#rights) of the guide.
///
/// The server must keep every key until it expires (`maxmemory-policy noeviction`), and its clock must not be set
/// forward. Otherwise recorded departures are lost; see [`Recovery`](crate::Recovery).
///
/// # Names
///
/// The value of a key and a policy is `PREFIX:{KEY}`, or `PREFIX:{KEY}:NAME` if the policy has a name. `KEY` is the
/// key with everything but letters, digits and `.-_~:/@` percent-encoded, or its SHA-256 if that is longer than 64
/// characters. Every value has an expiry. Any reader of the server can read the keys, so hash secrets in keys of your own, such as API
/// tokens, before you use them as keys.
///
/// # Failures
///
/// A call without an answer within the [timeout](Self::timeout) fails; the store does not repeat it. If it was sent, it may have
/// been executed: see [`StoreError::is_outcome_unknown`]. A broken connection is replaced at once. If that fails, a later
/// call tries again, after a pause of 50 to 100 ms at first, and of up to 1 s after more failures. The store also replaces
/// the connection to a server that has become a replica, or that answers neither a call nor a `PING` in time.
///
/// # Defaults
///
/// Prefix `throttle`, timeout 1 s, scripts, the server's clock. Settings apply to the store that they return, not to
/// earlier clones.
#[derive(Clone)]
#[must_use]
pub struct RedisStore {
    servers: Servers,
    prefix: Arc<str>,
    timeout: Duration,
    scripting: bool,
    server_time: bool,
    /// Calls of this process for one key take turns, so that only other processes cause conflicts. Their number also bounds
    /// that of exclusive connections.
    turns: Arc<[tokio::sync::Mutex<()>]>,
    /// The digests of the scripts that were sent to each shard.
    loaded: Arc<Mutex<HashSet<(u64, &'static str)>>>,
    subscription: Arc<OnceLock<Subscription>>,
}

/// The longest timeout of a call. It ends before the limiter drops it, as a call that is dropped replaces no broken connection.
const LONGEST_TIMEOUT: Duration = LONGEST_CALL.saturating_sub(Duration::from_millis(500));

/// A call, and the name of the value that it changes.
#[derive(Clone)]
struct NamedCall {
    name: String,
    call: Call,
}

impl RedisStore {
    /// Sets the start of the names of all Redis keys. Default: `throttle`.
    ///
    /// # Errors
    ///
    /// Fails unless the prefix is 1 to 128 visible ASCII characters without braces.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, BuildError> {
        if let Some(problem) = name_problem(prefix) {
            return Err(BuildError::new("prefix", problem));
        }
        self.prefix = prefix.into();
        self.subscription = Arc::default();
        Ok(self)
    }

    /// Sets how long a call waits for its answer. Those of limiters wait for at most 4.5 s. Default: 1 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Set it to `false` for servers that allow no scripts: the user lacks the right to them, or a proxy does not know
    /// them. Default: `true`.
    ///
    /// Each call then reads the value of its key, changes it in this process, and writes it in a transaction (`WATCH`,
    /// `GET`, `TIME`; `MULTI`, `SET`, `EXEC`). If another process has changed the value in between, the call starts
    /// again after a random pause. Limits hold exactly, and processes with and without scripts may share their quotas.
    /// A proxy has to keep `WATCH` and `EXEC` of a client on one connection to the server; otherwise limits are
    /// exceeded. The costs:
    ///
    /// - Two round trips for each attempt, instead of one.
    /// - A call fails after 50 attempts, or if the timeout is over. Nothing is consumed then. This may happen to a
    ///   process that is far from the server while many others use the same key.
    /// - The whole value is read and written each time, up to about 12 kB for each quota.
    /// - Each concurrent call needs a connection of its own. Up to 64 unused ones are kept open. Further calls wait for up to
    ///   the timeout, which then begins.
    ///
    /// # Errors
    ///
    /// Fails if the store was made from a connection, because it cannot open further ones.
    pub fn scripting(mut self, scripting: bool) -> Result<Self, BuildError> {
        if !scripting && self.servers.any_node().is_none() {
            let problem = "cannot be false with a connection that was handed in: connect by a URL or a client";
            return Err(BuildError::new("scripting", problem));
        }
        self.scripting = scripting;
        Ok(self)
    }

    /// Set it to `false` to use the clocks of the hosts, for servers that do not tell the time: the user lacks the
    /// right to `TIME`, or a proxy does not know it. Default: `true`.
    ///
    /// Quotas are then as exact as the clocks. If those of any two processes differ by at most D, at most N requests
    /// depart in any window that is shorter by D. A [`buffer`](crate::LimiterBuilder::buffer) of D restores the whole
    /// window. Synchronize the clocks by NTP, which makes D some milliseconds. All processes that share a quota need
    /// the same setting.
    ///
    /// Within a process, the clock never goes back: if the host's clock is set back, it stands still until that has
    /// caught up. If it is set forward, departures that still count are forgotten.
    pub fn server_time(mut self, server_time: bool) -> Self {
        self.server_time = server_time;
        self
    }

    fn on(servers: Servers) -> Self {
        Self {
            servers,
            prefix: "throttle".into(),
            timeout: Duration::from_secs(1),
            scripting: true,
            server_time: true,
            turns: (0..64).map(|_| Default::default()).collect(),
            loaded: Arc::default(),
            subscription: Arc::default(),
        }
    }
}

impl Store for RedisStore {
    fn call(&self, calls: Vec<Call>) -> Reply {
        let this = self.clone();
        let named = calls.into_iter().map(|call| NamedCall {
            name: this.name(&call.key, call.policy.name()),
            call,
        });
        let calls: Vec<_> = named.collect();
        Box::pin(async move { this.call_all(&calls).await })
    }

    fn ping(&self, key: &Key) -> Reply {
        let this = self.clone();
        // No value has this name, so nothing is written. It fails where a write does: on a replica, or without memory.
        let unused = this.name(key, None) + "ping";
        let mut write = Pipeline::new();
        let set = write.cmd("SET").arg(&unused).arg("");
        set.arg("XX").arg("PX").arg(1);
        Box::pin(async move {
            this.resume_subscription();
            let deadline = this.call_deadline();
            // It finds out whether the server refuses the connection that a transaction needs.
            let exclusive = this.exclusive(&unused, deadline).await?;
            let mut servers = &*this.servers;
            if let Some(connection) = &exclusive {
                servers = connection;
            }
            let reading = match this.read::<Value>(servers, &unused, write, deadline).await {
                // The slot moves, so that another server has answered than the one that read the clock.
                Err(error) if error.is_conflict() => this.read_clock(&unused).await?,
                read => read?.1,
            };
            if let Some(connection) = exclusive {
                connection.release();
            }
            Ok(reading.answered(Vec::new()))
        })
    }

    fn batch_size(&self) -> usize {
        // A transaction does not wait for those of other keys.
        if self.scripting { 64 } else { 1 }
    }

    fn shard(&self, key: &Key) -> u64 {
        // The slot of a name depends on its tag alone.
        self.servers.shard(&names::tag(key.as_str()))
    }

    fn is_subscribed(&self) -> bool {
        self.subscription.get().is_some_and(Subscription::is_live)
    }

    fn subscribe(&self, process: u64, subscriber: Box<dyn Fn(&Nudge) -> bool + Send + Sync>) {
        if self.servers.any_node().is_some() {
            let subscribe = || Subscription::new(self.servers.clone(), self.channel(0));
            let subscription = self.subscription.get_or_init(subscribe);
            subscription.add(self.channel(process), subscriber);
            subscription.resume();
        }
    }
}

impl RedisStore {
    fn call_deadline(&self) -> Instant {
        Instant::now() + self.timeout.min(LONGEST_TIMEOUT)
    }

    /// Sends calls to the server that holds their Redis keys, and reads its clock.
    async fn call_all(&self, calls: &[NamedCall]) -> Result<Answered, StoreError> {
        let name = calls.first().map_or("", |it| &it.name);
        let deadline = self.call_deadline();
        self.resume_subscription();
        let mut results = match self.scripting {
            true => self.run_scripts(calls, deadline).await?,
            false => calls.iter().map(|_| None).collect(),
        };
        let rest = calls.iter().zip(&mut results);
        let rest = rest.filter(|(_, result)| result.is_none());
        join_all(rest.map(async |(named, result)| {
            *result = Some(self.transact(named, deadline).await);
        }))
        .await;
        let mut at: Option<Reading> = None;
        let mut nudges = Pipeline::new();
        let results = calls.iter().zip(results.into_iter().flatten());
        let answers = results.map(|(named, result)| {
            let (answer, read) = result?;
            at = Some(at.map_or(read, |at| at.and(read)));
            for nudge in named.call.nudges(&answer) {
                let channel = self.channel(nudge.process);
                nudges.cmd("PUBLISH").arg(channel).arg(nudge.encode());
            }
            Ok(answer)
        });
        let answers: Vec<Result<Taken, StoreError>> = answers.collect();
        if !nudges.is_empty() {
            let (servers, name) = (self.servers.clone(), name.to_owned());
            // Transactions may have waited for their turns.
            let deadline = self.call_deadline();
            // It may fail, because nothing depends on it.
            let publish = async move { servers.run(&name, &nudges, deadline).await };
            let is_command = |it: &NamedCall| matches!(it.call.operation, Operation::Control(_));
            match calls.iter().any(is_command) {
                // The program may end after the answer.
                true => drop(publish.await),
                false => drop(tokio::spawn(publish)),
            }
        }
        let at = match at {
            Some(at) => at,
            None => {
                // An outage or a conflict fails the whole call; other errors are of single keys.
                let errors = answers.iter().filter_map(|it| it.as_ref().err());
                let errors = errors.filter(|it| it.is_outage() || it.is_conflict());
                let worst = errors.max_by_key(|it| (it.is_outcome_unknown(), it.is_outage()));
                if let Some(error) = worst {
                    return Err(error.clone());
                }
                self.read_clock(name).await?
            }
        };
        Ok(at.answered(answers))
    }

    /// It ends with the runtime on which it was started.
    fn resume_subscription(&self) {
        if let Some(subscription) = self.subscription.get() {
            subscription.resume();
        }
    }

    async fn read_clock(&self, name: &str) -> Result<Reading, StoreError> {
        let (servers, none) = (&*self.servers, Pipeline::new());
        let read = self.read::<Value>(servers, name, none, self.call_deadline());
        read.await.map(|(_, reading)| reading)
    }

    /// Sends commands that read, and then reads the clock.
    async fn read<T: FromRedisValue>(
        &self,
        servers: &dyn Topology,
        name: &str,
        mut commands: Pipeline,
        deadline: Instant,
    ) -> Result<(T, Reading), StoreError> {
        commands.cmd(if self.server_time { "TIME" } else { "PING" });
        let mut answers = servers.run(name, &commands, deadline).await?;
        let last = answers.pop().ok_or_else(strange)?;
        let mut origin = last.origin;
        let last = last.into_value()?;
        let now = if self.server_time {
            let time = redis::from_redis_value(last);
            let (seconds, micros): (u64, u64) = time.map_err(|_| strange())?;
            seconds.saturating_mul(1_000_000).saturating_add(micros)
        } else {
            let now = host_time();
            // The clock was read after the answer.
            origin.received = Instant::now();
            now
        };
        let is_elsewhere = |it: &CommandAnswer| it.origin.server != origin.server;
        if answers.iter().any(is_elsewhere) {
            return Err(servers::moved());
        }
        let values = answers.into_iter().map(CommandAnswer::into_value);
        let values = values.collect::<Result<_, _>>().map_err(naming(name))?;
        let values = redis::from_redis_value(Value::Array(values)).map_err(|_| strange())?;
        Ok((values, Reading { now, origin }))
    }

    /// The name of the value of a key under a policy of this name.
    fn name(&self, key: &Key, policy: Option<&str>) -> String {
        names::of(&self.prefix, &names::tag(key.as_str()), policy)
    }

    fn deadline(&self) -> Instant {
        // An instant cannot be centuries ahead.
        const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        Instant::now() + self.timeout.min(LONGEST)
    }

    /// The channel of nudges for all lanes of this process, or if it is 0, for all processes.
    fn channel(&self, process: u64) -> String {
        let prefix = &self.prefix;
        match process >> LANE_BITS {
            0 => format!("{prefix}:nudges"),
            process => format!("{prefix}:nudges:{process}"),
        }
    }

    /// The name of the mark that says since when a server, or a slot of a cluster, has known of every call.
    fn mark(&self, name: &str) -> String {
        format!("{}:created{}", self.prefix, self.servers.slot_suffix(name))
    }
}

/// The answer to a call.
type Done = (Taken, Reading);

/// The time by a server's clock, in microseconds. The server read it between the times in `origin`.
#[derive(Clone, Copy)]
struct Reading {
    now: u64,
    origin: AnswerOrigin,
}

impl Reading {
    /// A reading that is true of both calls. If two servers have answered, it teaches nothing about the clock of
    /// either.
    fn and(self, other: Self) -> Self {
        let mut now = self.now.max(other.now);
        let (mut origin, mut added) = (self.origin, other.origin);
        if origin.server != added.server {
            // The clock of the other server showed this time so much earlier, or shows it later.
            let earlier = Duration::from_micros(other.now.saturating_sub(self.now));
            let later = Duration::from_micros(self.now.saturating_sub(other.now));
            let moved = |at: Instant| at.checked_sub(earlier).unwrap_or(at) + later;
            (added.sent, added.received) = (moved(added.sent), moved(added.received));
            (origin.server, now) = (0, self.now);
        }
        origin.sent = origin.sent.min(added.sent);
        origin.received = origin.received.max(added.received);
        Self { now, origin }
    }

    fn answered(self, answers: Vec<Result<Taken, StoreError>>) -> Answered {
        Answered {
            now: self.now,
            server: self.origin.server,
            sent: self.origin.sent,
            received: self.origin.received,
            answers,
        }
    }
}

impl NamedCall {
    fn is_strict(&self) -> bool {
        matches!(&self.call.operation, Operation::Take(take) if take.strict.is_some())
    }
}

fn strange() -> StoreError {
    let message = "redis sent an unexpected answer: check that it is version 6.2 or later, without a proxy in between";
    StoreError::new(message).no_outage()
}

fn unrecognized(name: &str) -> StoreError {
    let which = format!(
        "the value of {name} was not written by this version of tower-throttle: delete it, or use another prefix"
    );
    let error = StoreError::new("redis holds a value that tower-throttle does not recognize");
    error.caused_by(which).unrecognized_value()
}

/// Names the value in the error of a call that does not recognize it.
fn naming(name: &str) -> impl Fn(StoreError) -> StoreError {
    move |error| match error.is_unrecognized_value() {
        true => unrecognized(name),
        false => error,
    }
}

/// The time by the host's clock, for servers that do not tell the time. It never goes back in this process.
fn host_time() -> u64 {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since_epoch.unwrap_or_default().as_micros() as u64;
    LATEST.fetch_max(now, Ordering::Relaxed).max(now)
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
