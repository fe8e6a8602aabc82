//! The shared store: [`RedisStore`].
//!
//! | module | subject |
//! | --- | --- |
//! | `script` | assembles the scripts for a policy |
//! | `wire` | calls and answers as bytes |
//! | `scripted` | runs the scripts |
//! | `transaction` | does without them |

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::transaction::Turns;
use super::{Answered, Call, Nudged, Operation, Store};
use crate::key::Key;
use crate::policy::Policy;
use crate::state::{Command, Taken};
use crate::store::redis::names;
use crate::store::redis::servers::{Origin, Servers, Subscription};
use crate::store::{Reply, StoreError};

mod script;
mod scripted;
#[cfg(test)]
mod tests;
mod transaction;
mod wire;

const TIMEOUT: Duration = Duration::from_secs(1);

/// Keeps state in a Redis or Valkey server of version 6.2 or later, or in a cluster of them, for all processes that
/// use it.
///
/// A batch of calls is one pipeline with one script call for each key. Each script runs as one atomic step by the
/// server's clock.
///
/// The value of a key and a policy is `PREFIX:{KEY}`, or `PREFIX:{KEY}:NAME` if the policy has a name. `KEY` is the
/// key with everything but letters, digits and `.-_~:/@` percent-encoded, or its SHA-256 if that is longer than 64
/// characters. Every value has an expiry.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    servers: Servers,
    prefix: Box<str>,
    timeout: Duration,
    scripting: bool,
    host_clock: Option<HostClock>,
    turns: Turns,
    /// The number of the server of each shard, as it answered last.
    known_servers: Mutex<HashMap<u64, u64>>,
    nudged: Arc<Mutex<Vec<Weak<dyn Nudged>>>>,
    subscription: OnceLock<Subscription>,
}

/// A call that outlives its caller.
struct Owned {
    key: Key,
    policy: Policy,
    operation: Operation,
    /// The name of the value.
    name: String,
}

/// How a store is used; see the methods of the same names.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) prefix: Box<str>,
    pub(crate) timeout: Duration,
    pub(crate) scripting: bool,
    pub(crate) server_time: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: "throttle".into(),
            timeout: TIMEOUT,
            scripting: true,
            server_time: true,
        }
    }
}

impl RedisStore {
    /// A store on the server of a URL such as `redis://localhost:6379`. It connects when it is used first.
    ///
    /// Defaults: the prefix `throttle` and a timeout of 1 s.
    ///
    /// # Errors
    ///
    /// Fails if the URL is invalid.
    pub fn at(url: &str) -> Result<Self, StoreError> {
        Ok(Self::new(Servers::at(url)?, Options::default()))
    }

    /// A store on these servers.
    pub(crate) fn new(servers: Servers, options: Options) -> Self {
        let Options {
            prefix,
            timeout,
            scripting,
            server_time,
        } = options;
        Self(Arc::new(Inner {
            servers,
            prefix,
            timeout,
            scripting,
            host_clock: (!server_time).then(HostClock::default),
            turns: Turns::default(),
            known_servers: Mutex::default(),
            nudged: Arc::default(),
            subscription: OnceLock::new(),
        }))
    }
}

impl Store for RedisStore {
    fn call(&self, calls: &[Call<'_>]) -> Reply<Answered> {
        let inner = self.0.clone();
        let calls: Vec<_> = calls.iter().map(|call| inner.own(call)).collect();
        Reply::pending(async move { inner.call(&calls).await })
    }

    fn ping(&self, shard: u64) -> Reply<Answered> {
        let inner = self.0.clone();
        Reply::pending(async move {
            let deadline = Instant::now() + inner.timeout;
            let (now, origin) = inner
                .ping(&format!("{}:ping", inner.prefix), deadline)
                .await?;
            inner.known_servers.lock().insert(shard, origin.server);
            Ok(answered(now, &[origin], Vec::new()))
        })
    }

    fn shard(&self, key: &Key) -> u64 {
        let tag = names::tag(key.as_str());
        self.0
            .servers
            .shard(&format!("{}:{{{tag}}}", self.0.prefix))
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
    fn own(&self, call: &Call<'_>) -> Owned {
        let mut operation = call.operation.clone();
        if let Operation::Take(take) = &mut operation {
            // The scripts have no larger numbers.
            take.process &= (1 << 53) - 1;
        }
        Owned {
            key: call.key.clone(),
            policy: call.policy.clone(),
            operation,
            name: name(&self.prefix, call.policy, call.key),
        }
    }

    async fn call(&self, calls: &[Owned]) -> Result<Answered, StoreError> {
        let deadline = Instant::now() + self.timeout;
        let Some(first) = calls.first() else {
            let name = format!("{}:ping", self.prefix);
            let (now, origin) = self.ping(&name, deadline).await?;
            return Ok(answered(now, &[origin], Vec::new()));
        };
        let mut results = Vec::with_capacity(calls.len());
        let (mut now, mut origins) = (0, Vec::new());
        if self.scripting {
            results = self.run_scripts(calls, deadline).await?;
        } else {
            results.resize_with(calls.len(), || None);
        }
        let mut answers = Vec::with_capacity(calls.len());
        for (call, result) in calls.iter().zip(results) {
            let result = match result {
                Some(result) => result,
                None => self.transact(call, deadline).await,
            };
            answers.push(result.map(|done| {
                now = now.max(done.now);
                origins.push(done.origin);
                done.answer
            }));
        }
        match origins.is_empty() {
            false => Ok(answered(now, &origins, answers)),
            // An outage fails the whole call; other errors are of single keys.
            true if answers.iter().flatten().next().is_none() && answers.iter().all(is_outage) => {
                let errors = answers.into_iter().filter_map(Result::err);
                Err(errors
                    .last()
                    .unwrap_or_else(|| StoreError::new("redis did not answer")))
            }
            true => {
                let (now, origin) = self.ping(&first.name, deadline).await?;
                Ok(answered(now, &[origin], answers))
            }
        }
    }

    /// The time of the server that holds this name.
    async fn ping(&self, name: &str, deadline: Instant) -> Result<(u64, Origin), StoreError> {
        let mut pipe = redis::pipe();
        pipe.cmd("TIME");
        let answers = self.servers.run(name, &pipe, deadline).await?;
        let answer = answers.first().ok_or_else(strange)?;
        let now = match &self.host_clock {
            Some(clock) => clock.now(),
            None => time(&answer.value)?,
        };
        Ok((now, answer.origin))
    }

    fn channel(&self) -> String {
        format!("{}:nudges", self.prefix)
    }

    /// The name of the mark that says since when a server, or a slot of a cluster, has known of every call.
    fn mark(&self, name: &str) -> String {
        match self.servers.slot_tag(name) {
            None => format!("{}:created", self.prefix),
            Some(tag) => format!("{}:{{{tag}}}:created", self.prefix),
        }
    }
}

/// A call with an answer.
struct Done {
    answer: Taken,
    now: u64,
    origin: Origin,
}

impl Owned {
    fn call(&self) -> Call<'_> {
        Call {
            key: &self.key,
            policy: &self.policy,
            operation: &self.operation,
        }
    }

    fn is_strict(&self) -> bool {
        matches!(&self.operation, Operation::Take(take) if take.strict.is_some())
    }

    /// True if the call may make units available to others.
    fn is_nudge(&self) -> bool {
        match &self.operation {
            Operation::Take(_) => false,
            Operation::Settle(settlements) => settlements.iter().any(|it| it.difference < 0),
            Operation::Control(command) => matches!(command, Command::Resume | Command::Reset),
        }
    }
}

/// The name of the value of a key under a policy.
fn name(prefix: &str, policy: &Policy, key: &Key) -> String {
    let tag = names::tag(key.as_str());
    match policy.name() {
        None => format!("{prefix}:{{{tag}}}"),
        Some(name) => format!("{prefix}:{{{tag}}}:{name}"),
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
    error.caused_by(which).foreign_value()
}

/// Microseconds, from an answer to `TIME`.
fn time(value: &redis::Value) -> Result<u64, StoreError> {
    if let redis::Value::ServerError(error) = value {
        return Err(crate::store::redis::servers::refused(error));
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
    fn now(&self) -> u64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since_epoch.unwrap_or_default().as_micros() as u64;
        self.latest.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.0.prefix)
            .finish_non_exhaustive()
    }
}
