//! One connection to one server: [`Connection`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use redis::ConnectionAddr::{Tcp, TcpTls};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, FromRedisValue as _, Pipeline, RedisResult, Value};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::errors::{of_attempt, of_call, refused, too_late, unreachable_at};
use super::target::Target;
use super::{AnswerOrigin, Answers, CommandAnswer};
use crate::key::sha256;
use crate::lock::Mutex;
use crate::store::StoreError;

/// A port without TLS may never answer a client that begins with TLS.
const LATE: &str = "no answer in time. A URL with rediss:// needs a port with TLS";

/// After so long, the server may have closed an unused connection.
const UNUSED: Duration = Duration::from_secs(1);

/// A connection that many calls share, or that one caller has to itself.
#[derive(Clone)]
pub(super) struct Connection {
    redis: MultiplexedConnection,
    /// See [`AnswerOrigin::server`].
    pub(super) server: u64,
    /// Closed once the runtime of the connection has shut down.
    runtime: Arc<oneshot::Sender<()>>,
    /// When it was used last.
    used: Arc<Mutex<Instant>>,
    /// Exclusive connections for the next callers. They end with this one, because the server may be a replica then.
    pub(super) idle: Arc<Mutex<Vec<Self>>>,
}

impl Connection {
    /// Connects on the current runtime.
    pub(super) async fn open(target: &Target, deadline: Instant) -> Result<Self, StoreError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        // A server has an address unless sentinels have to be asked for it.
        let mut address = "the sentinels".to_owned();
        let connecting = async {
            let client = (target.find)().await?;
            address = match client.get_connection_info().addr() {
                Tcp(host, port) | TcpTls { host, port, .. } if host.contains(':') => {
                    format!("[{host}]:{port}")
                }
                address => address.to_string(),
            };
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            let mut redis = connection.await?;
            let mut command = redis::cmd("INFO");
            let info = redis.send_packed_command(command.arg("server")).await?;
            match info {
                // A number that is missing for any other reason than a right would differ from that of other processes.
                Value::ServerError(error)
                    if error.code() == "NOAUTH" || refused(&error).is_outage() =>
                {
                    Err(error.into())
                }
                info => RedisResult::Ok((redis, info)),
            }
        };
        let connected = timeout_at(deadline, connecting).await;
        let connected = connected.map_err(|_| unreachable_at(&address, LATE))?;
        let (redis, info) = connected.map_err(|error| of_attempt(error, &address))?;
        let address = target.is_known_by_address.then_some(address);
        let (runtime, ended) = oneshot::channel();
        tokio::spawn(ended);
        Ok(Self {
            redis,
            server: identity(info, address),
            runtime: Arc::new(runtime),
            used: Arc::new(Mutex::new(Instant::now())),
            idle: Arc::default(),
        })
    }

    /// False if no call would be answered: the runtime of the connection has shut down, or the server has closed it.
    pub(super) fn is_usable(&self) -> bool {
        if self.runtime.is_closed() {
            return false;
        }
        let (mut used, now) = (self.used.lock(), Instant::now());
        let is_open = now - *used < UNUSED || {
            // On a closed connection, it fails at once. Else the server may get it, and nothing waits for the answer.
            let (mut redis, ping) = (self.redis.clone(), redis::cmd("PING"));
            let answer = redis.send_packed_command(&ping).now_or_never();
            answer.is_none_or(|it| it.is_ok())
        };
        if is_open {
            *used = now;
        }
        is_open
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.runtime, &other.runtime)
    }

    pub(super) async fn send(&self, commands: &Pipeline, deadline: Instant) -> Answers {
        send(&mut self.redis.clone(), self.server, commands, deadline).await
    }
}

/// Sends a pipeline, and leaves errors of single commands in their places. An atomic pipeline has one answer, that
/// of its `EXEC`, or the first error of its commands.
pub(crate) async fn send(
    redis: &mut impl ConnectionLike,
    server: u64,
    commands: &Pipeline,
    deadline: Instant,
) -> Answers {
    if commands.is_empty() {
        return Ok(Vec::new());
    }
    let (skipped, count) = match commands.is_transaction() {
        true => (commands.len() + 1, 1),
        false => (0, commands.len()),
    };
    let sent = Instant::now();
    if sent >= deadline {
        return Err(too_late());
    }
    let answer = redis.req_packed_commands(commands, skipped, count);
    let answer = timeout_at(deadline, answer).await;
    let received = Instant::now();
    let values = answer.map_err(|_| too_late().outcome_unknown())?;
    let origin = AnswerOrigin {
        server,
        sent,
        received,
    };
    let values = match values {
        Err(error) if commands.is_transaction() => {
            match error.clone().into_server_errors().as_deref() {
                Some([(_, refused), ..]) => vec![Value::ServerError(refused.clone())],
                _ => return Err(of_call(error)),
            }
        }
        values => values.map_err(of_call)?,
    };
    let answer = |value| CommandAnswer { value, origin };
    Ok(values.into_iter().map(answer).collect())
}

/// A number of the server process, from its `run_id`. A restart changes it.
///
/// Without the right to `INFO`, it is a number of the address, which a restart does not change. It is 0 if there
/// is no address that all processes use. All processes need the same number, so it depends on nothing else.
fn identity(info: Value, address: Option<String>) -> u64 {
    let info = String::from_redis_value(info).unwrap_or_default();
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    let text = run_id.map(str::trim).or(address.as_deref());
    text.map_or(0, |text| (sha256(text.as_bytes())[0] >> 64) as u64)
}
