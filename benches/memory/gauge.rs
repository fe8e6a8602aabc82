//! Measures the memory of Redis: [`Gauge`].

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Pipeline};

use tower_throttle_benches::support::Info;

/// Number of commands per pipeline.
const BATCH: usize = 1_000;

/// A connection that measures memory and sends the commands of schemes.
pub(crate) struct Gauge {
    connection: MultiplexedConnection,
}

impl Gauge {
    pub(crate) fn new(connection: MultiplexedConnection) -> Self {
        Self { connection }
    }

    /// Removes all keys.
    pub(crate) async fn clear(&mut self) -> anyhow::Result<()> {
        self.ask::<()>(redis::cmd("FLUSHALL").arg("SYNC")).await
    }

    /// Number of keys, including expired keys that Redis has not removed yet.
    pub(crate) async fn keys(&mut self) -> anyhow::Result<u64> {
        self.ask(&redis::cmd("DBSIZE")).await
    }

    /// The names of all keys.
    pub(crate) async fn names(&mut self) -> anyhow::Result<Vec<String>> {
        self.ask(redis::cmd("KEYS").arg("*")).await
    }

    /// Total `MEMORY USAGE` of these keys, without sampling.
    pub(crate) async fn usage(
        &mut self,
        names: impl IntoIterator<Item = String>,
    ) -> anyhow::Result<u64> {
        let mut sum = 0;
        for name in names {
            let mut usage = redis::cmd("MEMORY");
            usage.arg("USAGE").arg(name).arg("SAMPLES").arg(0);
            sum += self.ask::<u64>(&usage).await?;
        }
        Ok(sum)
    }

    /// The current `used_memory`.
    pub(crate) async fn used(&mut self) -> anyhow::Result<u64> {
        let info = Info::read(&mut self.connection, "memory").await?;
        info.number("used_memory")
    }

    /// `used_memory` once it is stable: Redis resizes its tables in small steps.
    pub(crate) async fn settled(&mut self) -> anyhow::Result<u64> {
        let mut used = self.used().await?;
        let mut same = 0;
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(110)).await;
            let now = self.used().await?;
            same = if now.abs_diff(used) < 1_024 {
                same + 1
            } else {
                0
            };
            used = now;
            if same == 3 {
                break;
            }
        }
        Ok(used)
    }

    /// Sends commands and ignores their results.
    pub(crate) async fn send(
        &mut self,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> anyhow::Result<()> {
        let mut commands = commands.into_iter().peekable();
        while commands.peek().is_some() {
            let mut batch = Pipeline::new();
            for command in commands.by_ref().take(BATCH) {
                batch.add_command(command).ignore();
            }
            batch.exec_async(&mut self.connection).await?;
        }
        Ok(())
    }

    pub(crate) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> anyhow::Result<T> {
        Ok(command.query_async(&mut self.connection).await?)
    }
}

/// The growth per key.
pub(crate) fn growth(before: u64, after: u64, count: u64) -> f64 {
    (after as f64 - before as f64) / count as f64
}
