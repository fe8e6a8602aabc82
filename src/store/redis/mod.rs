//! The shared store: [`RedisStore`].
//!
//! | module | subject |
//! | --- | --- |
//! | `connect` | ways to connect |
//! | `keys`, `look` | lists stored keys, and shows their state |
//! | `names` | names of values |
//! | `script` | assembles the scripts for a policy |
//! | `wire` | calls and answers as bytes |
//! | `scripted` | runs the scripts |
//! | `transaction` | does without them |

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::servers::{Origin, Servers, Subscription};
use self::transaction::Turns;
use super::{Answered, Call, Nudged, Operation, Store};
use crate::algorithm::{Command, Taken};
use crate::error::BuildError;
use crate::key::Key;
use crate::policy::check_name;
use crate::store::{Reply, StoreError};

pub use self::keys::{Keys, StoredKey};
pub use self::look::{Generation, KeyState, QuotaState, WaitingProcess};

mod connect;
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
/// A batch of calls is one pipeline with one script call for each key. Each script runs as one atomic step by the
/// server's clock. The store needs the [rights](crate::guide::redis#rights) of the guide.
///
/// The server must keep every key until it expires (`maxmemory-policy noeviction`), and its clock must not be set
/// forward. Otherwise recorded departures are lost; see [`Recovery`](crate::Recovery).
///
/// # Names
///
/// The value of a key and a policy is `PREFIX:{KEY}`, or `PREFIX:{KEY}:NAME` if the policy has a name. `KEY` is the
/// key with everything but letters, digits and `.-_~:/@` percent-encoded, or its SHA-256 if that is longer than 64
/// characters. Every value has an expiry. Any reader of the server can read the keys, so hash secrets, such as API
/// tokens, before you use them as keys.
///
/// # Failures
///
/// A call without an answer within the [timeout](Self::timeout) fails, and is not repeated. If it was sent, it may have
/// been executed: see [`StoreError::is_outcome_unknown`]. A broken connection is replaced by the next call that needs
/// it, with backoff from 100 ms to 1 s. The store also replaces the connection to a server that has become a replica,
/// or that answers neither a call nor a `PING` in time.
///
/// # Defaults
///
/// Prefix `throttle`, timeout 1 s, scripts, the server's clock. Settings apply to the store that they return, not to
/// earlier clones.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    servers: Servers,
    options: Options,
    host_clock: Option<HostClock>,
    turns: Turns,
    /// The number of the server of each shard, as it answered last.
    known_servers: Mutex<HashMap<u64, u64>>,
    nudged: Arc<Mutex<Vec<Weak<dyn Nudged>>>>,
    subscription: OnceLock<Subscription>,
}

/// A call, and the name of the value that it changes.
struct Named {
    call: Call,
    name: String,
}

/// How a store is used; see the methods of the same names.
#[derive(Debug, Clone)]
struct Options {
    prefix: Box<str>,
    timeout: Duration,
    scripting: bool,
    server_time: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: "throttle".into(),
            timeout: Duration::from_secs(1),
            scripting: true,
            server_time: true,
        }
    }
}

impl RedisStore {
    /// Sets the start of the names of all Redis keys. Default: `throttle`.
    ///
    /// # Errors
    ///
    /// Fails unless the prefix is 1 to 128 visible ASCII characters without braces.
    pub fn prefix(self, prefix: &str) -> Result<Self, BuildError> {
        check_name("prefix", prefix)?;
        Ok(self.with(|options| options.prefix = prefix.into()))
    }

    /// Sets how long a call waits for its answer. Default: 1 s.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|options| options.timeout = timeout)
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
    /// - Each concurrent call needs a connection of its own. Up to 64 unused ones are kept open.
    ///
    /// # Errors
    ///
    /// Fails if the store was made from a connection, because it cannot open further ones.
    pub fn scripting(self, scripting: bool) -> Result<Self, BuildError> {
        if !scripting && !self.0.servers.makes_connections() {
            let problem = "is false, which takes a store that makes its own connections";
            return Err(BuildError::new("scripting", problem));
        }
        Ok(self.with(|options| options.scripting = scripting))
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
    #[must_use]
    pub fn server_time(self, server_time: bool) -> Self {
        self.with(|options| options.server_time = server_time)
    }

    fn on(servers: Servers, options: Options) -> Self {
        Self(Arc::new(Inner {
            servers,
            host_clock: (!options.server_time).then(HostClock::default),
            options,
            turns: Turns::default(),
            known_servers: Mutex::default(),
            nudged: Arc::default(),
            subscription: OnceLock::new(),
        }))
    }

    fn with(self, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = self.0.options.clone();
        change(&mut options);
        Self::on(self.0.servers.clone(), options)
    }
}

impl Store for RedisStore {
    fn call(&self, calls: Vec<Call>) -> Reply<Answered> {
        let inner = self.0.clone();
        let named = calls.into_iter().map(|call| Named {
            name: names::of(&inner.options.prefix, &call.key, call.policy.name()),
            call,
        });
        let calls: Vec<_> = named.collect();
        Reply::pending(async move { inner.call(&calls).await })
    }

    fn ping(&self, key: &Key) -> Reply<Answered> {
        let inner = self.0.clone();
        let name = names::of(&inner.options.prefix, key, None);
        Reply::pending(async move {
            let (now, origin) = inner.ping(&name, inner.deadline()).await?;
            let shard = inner.servers.shard(&name);
            inner.known_servers.lock().insert(shard, origin.server);
            Ok(answered(now, &[origin], Vec::new()))
        })
    }

    fn batch_size(&self) -> usize {
        // A transaction does not wait for those of other keys.
        if self.0.options.scripting { 64 } else { 1 }
    }

    fn shard(&self, key: &Key) -> u64 {
        let name = names::of(&self.0.options.prefix, key, None);
        self.0.servers.shard(&name)
    }

    fn subscribe(&self, subscriber: Weak<dyn Nudged>) {
        let inner = &self.0;
        {
            let mut nudged = inner.nudged.lock();
            nudged.retain(|it| it.strong_count() > 0);
            nudged.push(subscriber);
        }
        inner.subscription.get_or_init(|| {
            let nudged = inner.nudged.clone();
            let on_message = move |message: &[u8]| {
                let Ok(key) = str::from_utf8(message) else {
                    return;
                };
                let key = Key::new(key);
                let subscribers: Vec<_> = nudged.lock().iter().filter_map(Weak::upgrade).collect();
                subscribers.iter().for_each(|it| it.nudged(&key));
            };
            inner
                .servers
                .subscribe(inner.channel(), Arc::new(on_message))
        });
    }
}

impl Inner {
    async fn call(&self, calls: &[Named]) -> Result<Answered, StoreError> {
        let deadline = self.deadline();
        let mut results = match self.options.scripting {
            true => self.run_scripts(calls, deadline).await?,
            false => calls.iter().map(|_| None).collect(),
        };
        let places = 0..calls.len();
        let rest: Vec<_> = places.filter(|&it| results[it].is_none()).collect();
        let transactions = rest.iter().map(|&it| self.transact(&calls[it], deadline));
        for (&place, done) in rest.iter().zip(join_all(transactions).await) {
            results[place] = Some(done);
        }
        let (mut now, mut origins) = (0, Vec::with_capacity(calls.len()));
        let answers = results.into_iter().flatten().map(|result| {
            result.map(|done| {
                now = now.max(done.now);
                origins.push(done.origin);
                done.answer
            })
        });
        let mut answers: Vec<_> = answers.collect();
        if origins.is_empty() {
            // An outage fails the whole call; other errors are of single keys.
            if answers.iter().all(is_outage)
                && let Some(Err(error)) = answers.pop()
            {
                return Err(error);
            }
            let name = calls.first().map_or("", |call| &call.name);
            let (time, origin) = self.ping(name, deadline).await?;
            (now, origins) = (time, vec![origin]);
        }
        Ok(answered(now, &origins, answers))
    }

    /// The time of the server that holds this name.
    async fn ping(&self, name: &str, deadline: Instant) -> Result<(u64, Origin), StoreError> {
        let mut pipe = redis::pipe();
        pipe.cmd("TIME");
        let answers = self.servers.run(name, &pipe, deadline).await?;
        let answer = answers.first().ok_or_else(strange)?;
        let mut origin = answer.origin;
        let now = match &self.host_clock {
            Some(clock) => clock.read_after(&mut origin),
            None => time(&answer.value)?,
        };
        Ok((now, origin))
    }

    fn deadline(&self) -> Instant {
        // An instant cannot be centuries ahead.
        const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        Instant::now() + self.options.timeout.min(LONGEST)
    }

    fn ping_name(&self) -> String {
        format!("{}:ping", self.options.prefix)
    }

    fn channel(&self) -> String {
        format!("{}:nudges", self.options.prefix)
    }

    /// The name of the mark that says since when a server, or a slot of a cluster, has known of every call.
    fn mark(&self, name: &str) -> String {
        let prefix = &self.options.prefix;
        match self.servers.slot_tag(name) {
            None => format!("{prefix}:created"),
            Some(tag) => format!("{prefix}:created:{{{tag}}}"),
        }
    }
}

/// A call with an answer.
struct Done {
    answer: Taken,
    now: u64,
    origin: Origin,
}

impl Named {
    fn is_strict(&self) -> bool {
        matches!(&self.call.operation, Operation::Take(take) if take.strict.is_some())
    }

    /// True if the call may make units available to others.
    fn is_nudge(&self) -> bool {
        match &self.call.operation {
            Operation::Take(take) => take.settlements.iter().any(|it| it.difference < 0),
            Operation::Control(command) => matches!(command, Command::Resume | Command::Reset),
        }
    }
}

fn answered(now: u64, origins: &[Origin], answers: Vec<Result<Taken, StoreError>>) -> Answered {
    let sent = origins.iter().map(|origin| origin.sent).min();
    let received = origins.iter().map(|origin| origin.received).max();
    let last = Instant::now();
    Answered {
        now,
        server: origins.last().map_or(0, |origin| origin.server),
        sent: sent.unwrap_or(last),
        received: received.unwrap_or(last),
        answers,
    }
}

fn is_outage(answer: &Result<Taken, StoreError>) -> bool {
    answer.as_ref().is_err_and(StoreError::is_outage)
}

fn strange() -> StoreError {
    StoreError::new("redis answered with something else").no_outage()
}

fn unrecognized(name: &str) -> StoreError {
    let which = format!("the value of {name} was not written by this version of tower-throttle");
    let error = StoreError::new("redis holds a value that tower-throttle does not recognize");
    error.caused_by(which).unrecognized_value()
}

/// Microseconds, from an answer to `TIME`.
fn time(value: &redis::Value) -> Result<u64, StoreError> {
    if let redis::Value::ServerError(error) = value {
        return Err(self::servers::refused(error));
    }
    let parts: Result<(u64, u64), _> = redis::from_redis_value_ref(value);
    let (seconds, micros) = parts.map_err(|_| strange())?;
    Ok(seconds * 1_000_000 + micros)
}

/// The host's clock, for servers that do not tell the time. It never goes back in this process.
#[derive(Debug, Default)]
struct HostClock {
    latest: AtomicU64,
}

impl HostClock {
    /// Reads the clock after an answer, which counts as received only then.
    fn read_after(&self, origin: &mut Origin) -> u64 {
        let now = self.now();
        origin.received = Instant::now();
        now
    }

    fn now(&self) -> u64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since_epoch.unwrap_or_default().as_micros() as u64;
        self.latest.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.0.options.prefix)
            .field("timeout", &self.0.options.timeout)
            .finish_non_exhaustive()
    }
}
