//! One connection to one server: [`Connection`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, FromRedisValue as _, Pipeline, Value};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::errors::{Failure, of_attempt, too_late};
use super::target::{self, Target};
use super::{Answered, Origin};
use crate::store::StoreError;

/// A connection that many calls share, or that one caller has to itself.
#[derive(Clone)]
pub(super) struct Connection {
    redis: MultiplexedConnection,
    server: u64,
    /// A number that no other connection of this process has.
    pub(super) number: u64,
    /// Closed once the runtime of the connection has shut down.
    runtime: Arc<watch::Sender<()>>,
}

impl Connection {
    /// Connects on the current runtime.
    pub(super) async fn open(target: &dyn Target) -> Result<Self, StoreError> {
        let (mut redis, address) = target::connect(target).await?;
        let mut command = redis::cmd("INFO");
        let info = redis.send_packed_command(command.arg("server")).await;
        let explain = |error| of_attempt(error, &target.secrets());
        let info = match info.map_err(explain)? {
            Value::ServerError(error) if error.code() == "NOAUTH" => {
                return Err(explain(error.into()));
            }
            info => info,
        };
        let address = target.is_known_by_address().then_some(address);
        let (runtime, mut task) = watch::channel(());
        tokio::spawn(async move { while task.changed().await.is_ok() {} });
        Ok(Self {
            redis,
            server: identity(info, address),
            number: next_number(),
            runtime: Arc::new(runtime),
        })
    }

    /// False if the runtime of the connection has shut down, so that no call would be answered.
    pub(super) fn is_usable(&self) -> bool {
        !self.runtime.is_closed()
    }

    pub(super) async fn send(
        &self,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Answered>, Failure> {
        let by = (self.server, self.number);
        send(&mut self.redis.clone(), by, commands, deadline).await
    }

    /// True if the server answers a `PING`, even if it refuses it.
    pub(super) async fn answers_ping(&self, within: Duration) -> bool {
        let mut redis = self.redis.clone();
        let ping = Cmd::ping();
        matches!(
            timeout(within, redis.send_packed_command(&ping)).await,
            Ok(Ok(_))
        )
    }
}

/// Sends a pipeline, and leaves errors of single commands in their places. An atomic pipeline has one answer, that
/// of its `EXEC`.
pub(super) async fn send(
    redis: &mut impl ConnectionLike,
    (server, connection): (u64, u64),
    commands: &Pipeline,
    deadline: Instant,
) -> Result<Vec<Answered>, Failure> {
    if commands.is_empty() {
        return Ok(Vec::new());
    }
    let (skipped, count) = match commands.is_transaction() {
        true => (commands.len() + 1, 1),
        false => (0, commands.len()),
    };
    let sent = Instant::now();
    if sent >= deadline {
        return Err(Failure::Refused(too_late()));
    }
    let answer = timeout_at(
        deadline,
        redis.req_packed_commands(commands, skipped, count),
    )
    .await;
    let received = Instant::now();
    let values: Vec<Value> = match answer {
        Ok(values) => values.map_err(Failure::of_call)?,
        Err(_) => return Err(Failure::late()),
    };
    let origin = Origin {
        server,
        connection,
        sent,
        received,
    };
    let answered = |value| Answered { value, origin };
    Ok(values.into_iter().map(answered).collect())
}

pub(super) fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A number of the server process, from its `run_id`. A restart changes it.
///
/// Without the right to `INFO`, it is a number of the address, which a restart does not change. It is 0 if there
/// is no address that all processes use. All processes need the same number, so it depends on nothing else.
fn identity(info: Value, address: Option<String>) -> u64 {
    let info = String::from_redis_value(info).unwrap_or_default();
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    let run_id = run_id.map(|it| it.trim().to_owned());
    run_id.or(address).map_or(0, |it| hash(&it))
}

fn hash(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    let first = digest.iter().take(8);
    first.fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}
