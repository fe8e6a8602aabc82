//! The shared store: [`RedisStore`].

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::{Client, Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use self::script::{RELEASE, RESERVE, Script};
use super::{Ask, Release, Reply, Reserve, Reserved, Store, StoreError};
use crate::algorithm::Rule;
use crate::error::BuildError;
use crate::key::Key;
use crate::policy::{Policy, check_name};

mod names;
mod reply;
mod script;
#[cfg(test)]
mod tests;

/// Longer than any wait, and a number that Lua holds exactly.
const FAR: u64 = 1 << 53;

/// Reserves slots in a Redis or Valkey server of version 6.2 or later, for all processes that use it.
///
/// Each group of waiting requests costs one `EVALSHA`, which runs as one atomic step by the server's
/// own clock; the script is loaded when the server does not know it, so a restart or a
/// `SCRIPT FLUSH` goes unnoticed. Besides `EVALSHA` and `SCRIPT LOAD`, the scripts use `TIME`, `GET`,
/// `SET`, `DEL`, `STRLEN`, `GETRANGE`, `SETRANGE` and `PEXPIRE`; a user needs the right to all of them.
///
/// The server's clock must not be set forward, nor may the server evict keys (`maxmemory-policy
/// noeviction`): either forgets departures that still count.
///
/// # Keys
///
/// The state of a limiter key stands under `PREFIX:{KEY}:POLICY` and names that continue this one,
/// all with an expiry. `KEY` is the key with everything but letters, digits and `.-_~:/@` percent
/// encoded; where that is longer than 64 characters, its SHA-256. So all state of a key lies in one
/// slot of a cluster, and no text of a user's can change that. `POLICY` is [`Policy::id`]. Keys
/// are readable to whoever can read the server: hash secrets, such as API tokens, before they
/// become keys.
///
/// # Failures
///
/// A call that is not answered within the [timeout](Self::timeout) fails; it is not repeated. If it
/// had been sent, its slots may have been reserved: see [`StoreError::is_outcome_unknown`].
///
/// # Defaults
///
/// Prefix `throttle`, timeout 1 s.
#[derive(Clone)]
pub struct RedisStore {
    connection: Connection,
    prefix: Arc<str>,
    timeout: Duration,
}

#[derive(Clone)]
enum Connection {
    Manager(ConnectionManager),
    Multiplexed(MultiplexedConnection),
}

impl RedisStore {
    /// Connects to the server at this URL, such as `redis://127.0.0.1:6379/` or
    /// `redis://user:password@host/2`. For `rediss://`, enable one of the TLS features of the crate
    /// `redis`.
    ///
    /// A connection that breaks is restored; calls fail until then. If the server vanishes without a
    /// word, they fail until TCP notices, which may take a quarter of an hour.
    ///
    /// # Errors
    ///
    /// Fails if the URL is not valid, and if the server cannot be reached within one second.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        const URL: &str = "the url is not one of a redis server";
        const UNREACHABLE: &str = "redis cannot be reached";
        let timeout = Duration::from_secs(1);
        // The cause is kept back, as it may quote the URL and the password in it.
        let client = Client::open(url).map_err(|_| StoreError::new(URL))?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(timeout))
            // The store's own timeout bounds every call.
            .set_response_timeout(None)
            .set_number_of_retries(1)
            .set_max_delay(timeout);
        let connecting = ConnectionManager::new_with_config(client, config);
        match tokio::time::timeout(timeout, connecting).await {
            Ok(Ok(manager)) => Ok(Self::from(manager)),
            Ok(Err(error)) => Err(StoreError::new(UNREACHABLE).caused_by(error)),
            Err(elapsed) => Err(StoreError::new(UNREACHABLE).caused_by(elapsed)),
        }
    }

    /// Sets what the names of all keys start with. Default: `throttle`.
    ///
    /// # Errors
    ///
    /// Fails unless the prefix is 1 to 128 visible ASCII characters without braces.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, BuildError> {
        check_name("prefix", prefix)?;
        self.prefix = prefix.into();
        Ok(self)
    }

    /// Sets how long to wait for an answer. Default: 1 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A call of `script` up to and including the rules.
    fn call(&self, script: &Script, policy: &Policy, key: &Key) -> Cmd {
        let names = names::of(&self.prefix, policy, key);
        let mut call = redis::cmd("EVALSHA");
        call.arg(script.sha()).arg(names.len());
        for name in &names {
            call.arg(name);
        }
        call.arg(policy.rules().len());
        for (name, parameters) in policy.rules().iter().map(Rule::parts) {
            call.arg(name).arg(&parameters[..]);
        }
        call
    }

    /// Calls `reserve.lua`, where each run of requests waits so long at most.
    fn ask(&self, reserve: &Reserve<'_>, max_wait: impl Fn(&Ask) -> i64) -> Reply<Reserved> {
        if let Err(error) = reserve.check() {
            return Reply::ready(Err(error));
        }
        let Reserve { key, policy, .. } = *reserve;
        let mut call = self.call(&RESERVE, policy, key);
        let terms = reserve.terms();
        call.arg(terms.margin).arg(terms.least_margin);
        call.arg(terms.round_trip).arg(terms.stagger);
        call.arg(terms.not_before);
        for ask in reserve.asks {
            call.arg(ask.count).arg(ask.cost).arg(max_wait(ask));
        }
        let costs: Vec<_> = reserve
            .asks
            .iter()
            .map(|ask| (ask.count, ask.cost))
            .collect();
        let numbers = policy.rules().iter().map(Rule::receipts).sum();
        let answer = self.send(Some(&RESERVE), call);
        Reply::pending(async move { reply::read(answer.await?, &costs, numbers) })
    }

    /// Sends a call; of a script, which is loaded if the server does not know it.
    fn send(
        &self,
        script: Option<&'static LazyLock<Script>>,
        call: Cmd,
    ) -> impl Future<Output = Result<Value, StoreError>> + Send + 'static {
        let mut connection = self.connection.clone();
        let timeout = self.timeout;
        async move {
            match tokio::time::timeout(
                timeout,
                connection.run(script.map(|script| &**script), &call),
            )
            .await
            {
                Ok(answer) => answer.map_err(explain),
                Err(elapsed) => Err(StoreError::new("redis did not answer in time")
                    .caused_by(elapsed)
                    .outcome_unknown()),
            }
        }
    }
}

impl Store for RedisStore {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.ask(reserve, |ask| ask.max_wait.min(FAR).cast_signed())
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.ask(reserve, |_| -1)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        let mut call = redis::cmd("DEL");
        call.arg(&names::of(&self.prefix, policy, key)[..]);
        let answer = self.send(None, call);
        Reply::pending(async move { answer.await.map(drop) })
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        let Release { key, policy, slots } = *release;
        let mut call = self.call(&RELEASE, policy, key);
        for slot in slots {
            call.arg(slot.at).arg(slot.record).arg(slot.cost);
            for number in slot.receipt.as_slice() {
                call.arg(number);
            }
        }
        let answer = self.send(Some(&RELEASE), call);
        Reply::pending(async move { answer.await.map(drop) })
    }
}

impl Connection {
    async fn run(&mut self, script: Option<&Script>, call: &Cmd) -> RedisResult<Value> {
        const UNKNOWN: ErrorKind = ErrorKind::Server(ServerErrorKind::NoScript);
        match (self.query(call).await, script) {
            (Err(error), Some(script)) if error.kind() == UNKNOWN => {
                let mut both = redis::pipe();
                both.add_command(script.load())
                    .ignore()
                    .add_command(call.clone());
                let (answer,) = match self {
                    Self::Manager(connection) => both.query_async(connection).await?,
                    Self::Multiplexed(connection) => both.query_async(connection).await?,
                };
                Ok(answer)
            }
            (answer, _) => answer,
        }
    }

    async fn query(&mut self, call: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Manager(connection) => call.query_async(connection).await,
            Self::Multiplexed(connection) => call.query_async(connection).await,
        }
    }
}

/// What the server refused recorded nothing: the scripts check all state before they take a slot.
fn explain(error: RedisError) -> StoreError {
    let refused = matches!(
        error.kind(),
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed
    );
    if refused {
        StoreError::new("redis refused the call").caused_by(error)
    } else if error.is_connection_refusal() {
        StoreError::new("redis cannot be reached").caused_by(error)
    } else {
        let lost = StoreError::new("the connection to redis was lost");
        lost.caused_by(error).outcome_unknown()
    }
}

impl From<ConnectionManager> for RedisStore {
    /// The manager's own response timeout applies besides the store's.
    fn from(manager: ConnectionManager) -> Self {
        Self::from(Connection::Manager(manager))
    }
}

impl From<MultiplexedConnection> for RedisStore {
    /// Such a connection is not restored when it breaks.
    fn from(mut connection: MultiplexedConnection) -> Self {
        // The store's own timeout bounds every call.
        connection.set_response_timeout(Duration::MAX);
        Self::from(Connection::Multiplexed(connection))
    }
}

impl From<Connection> for RedisStore {
    fn from(connection: Connection) -> Self {
        Self {
            connection,
            prefix: "throttle".into(),
            timeout: Duration::from_secs(1),
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
