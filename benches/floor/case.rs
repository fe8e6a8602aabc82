//! The calls to compare: [`Case`].

use anyhow::Context as _;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tower_throttle::Limiter;
use tower_throttle::key::Key;

use crate::CALLERS;

/// A call to Redis, and the commands that Redis counts for it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The commands whose time is measured; scripts include the commands that they run.
    pub(crate) counted: &'static [&'static str],
    asked: Asked,
}

enum Asked {
    /// Commands in one round trip.
    Commands(MultiplexedConnection, Vec<Cmd>),
    /// Simultaneous requests for one key, which share a call.
    Acquire {
        limiter: Limiter,
        count: usize,
        /// Keys without a pending request, so that concurrent callers do not share calls.
        keys: Mutex<Vec<Key>>,
    },
}

const SCRIPT: &[&str] = &["evalsha"];

impl Case {
    pub(crate) fn commands(
        name: &'static str,
        counted: &'static [&'static str],
        connection: &MultiplexedConnection,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> Self {
        let commands = commands.into_iter().collect();
        let asked = Asked::Commands(connection.clone(), commands);
        Self {
            name,
            counted,
            asked,
        }
    }

    /// A script with one key and one argument.
    pub(crate) async fn script(
        name: &'static str,
        connection: &MultiplexedConnection,
        text: &str,
    ) -> anyhow::Result<Self> {
        let mut connection = connection.clone();
        let mut load = redis::cmd("SCRIPT");
        let sha: String = load
            .arg("LOAD")
            .arg(text)
            .query_async(&mut connection)
            .await?;
        let mut call = redis::cmd("EVALSHA");
        call.arg(sha).arg(1).arg("floor").arg(60_000);
        Ok(Self::commands(name, SCRIPT, &connection, [call]))
    }

    pub(crate) fn acquire(name: &'static str, limiter: Limiter, count: usize) -> Self {
        let key = |caller| Key::new(format!("{name}:{caller}"));
        let asked = Asked::Acquire {
            limiter,
            count,
            keys: Mutex::new((0..CALLERS).map(key).collect()),
        };
        Self {
            name,
            counted: SCRIPT,
            asked,
        }
    }

    /// Makes one call, and waits for the reply.
    pub(crate) async fn ask(&self) -> anyhow::Result<()> {
        match &self.asked {
            Asked::Commands(connection, commands) => {
                let mut connection = connection.clone();
                if let [command] = &commands[..] {
                    command.query_async::<Value>(&mut connection).await?;
                } else {
                    let mut pipeline = redis::Pipeline::new();
                    for command in commands {
                        pipeline.add_command(command.clone());
                    }
                    pipeline.query_async::<Value>(&mut connection).await?;
                }
            }
            Asked::Acquire {
                limiter,
                count,
                keys,
            } => {
                let key = keys.lock().pop().context("more callers than keys")?;
                try_join_all((0..*count).map(|_| limiter.acquire(key.clone()))).await?;
                keys.lock().push(key);
            }
        }
        Ok(())
    }
}
