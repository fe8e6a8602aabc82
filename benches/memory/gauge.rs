//! Measures the memory of Redis: [`Gauge`].

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Pipeline};

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

    /// The names of all keys.
    pub(crate) async fn names(&mut self) -> anyhow::Result<Vec<String>> {
        self.ask(redis::cmd("KEYS").arg("*")).await
    }

    /// Mean `MEMORY USAGE` of these keys, without sampling.
    pub(crate) async fn usage(&mut self, names: &[String]) -> anyhow::Result<f64> {
        let mut sum = 0;
        for name in names {
            let mut usage = redis::cmd("MEMORY");
            usage.arg("USAGE").arg(name).arg("SAMPLES").arg(0);
            sum += self.ask::<u64>(&usage).await?;
        }
        Ok(sum as f64 / names.len() as f64)
    }

    /// Mean length of the values of these keys, which are strings.
    pub(crate) async fn length(&mut self, names: &[String]) -> anyhow::Result<f64> {
        let mut sum = 0;
        for name in names {
            sum += self.ask::<u64>(redis::cmd("STRLEN").arg(name)).await?;
        }
        Ok(sum as f64 / names.len() as f64)
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

    async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> anyhow::Result<T> {
        Ok(command.query_async(&mut self.connection).await?)
    }
}
