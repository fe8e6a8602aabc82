//! What is asked of Redis: [`Case`].

use anyhow::ensure;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::{Ask, Outcome, RedisStore, Reserve, Store as _};

/// Something to ask, and what Redis counts it as.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The commands whose time it is, scripts with all that they run.
    pub(crate) counted: &'static [&'static str],
    asked: Asked,
}

#[allow(
    clippy::large_enum_variant,
    reason = "there are a dozen of them, and none is moved while it is measured"
)]
enum Asked {
    /// In one round trip.
    Commands(MultiplexedConnection, Vec<Cmd>),
    /// So many requests, in one call.
    Reserve {
        store: RedisStore,
        key: Key,
        policy: Policy,
        count: u32,
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

    pub(crate) fn reserve(
        name: &'static str,
        store: &RedisStore,
        policy: Policy,
        count: u32,
    ) -> Self {
        let asked = Asked::Reserve {
            store: store.clone(),
            key: Key::new(format!("floor:{count}")),
            policy,
            count,
        };
        Self {
            name,
            counted: SCRIPT,
            asked,
        }
    }

    /// Asks once, and waits for the answer.
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
            Asked::Reserve {
                store,
                key,
                policy,
                count,
            } => {
                let asks = [Ask {
                    count: *count,
                    cost: 1,
                    max_wait: u64::MAX,
                }];
                let mut reserve = Reserve::new(key, policy);
                reserve.asks = &asks;
                let reserved = store.reserve(&reserve).await?;
                let granted = |outcome: &Outcome| matches!(outcome, Outcome::Granted(_));
                ensure!(
                    reserved.outcomes().iter().all(granted),
                    "a request was refused"
                );
            }
        }
        Ok(())
    }
}
