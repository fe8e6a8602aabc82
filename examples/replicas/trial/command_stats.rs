//! Counts the commands that clients sent to a Redis server: [`CommandStats`].

use std::collections::BTreeMap;

use anyhow::Context as _;
use redis::IntoConnectionInfo as _;
use redis::aio::MultiplexedConnection;

/// Commands, with subcommands, that clients send and scripts of the limiter never do.
///
/// `INFO` is excluded, because this module sends it.
const FROM_CLIENTS: [&str; 9] = [
    "auth", "client", "config", "eval", "evalsha", "hello", "ping", "script", "select",
];

/// Reads `INFO commandstats` over a separate connection.
pub(crate) struct CommandStats {
    connection: MultiplexedConnection,
}

/// The calls of each command, by its name in Redis: `evalsha`, and from Redis 7 on `script|load`.
///
/// Redis counts the commands of scripts and of clients together. So only commands that scripts never run are counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(BTreeMap<String, u64>);

impl CommandStats {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        // The message omits the cause, which may quote the URL with its password.
        let info = url.into_connection_info().ok();
        let info = info.context("invalid Redis URL: it must be like redis://127.0.0.1/")?;
        let client = redis::Client::open(info)?;
        let connection = client.get_multiplexed_async_connection().await;
        let connection = connection.context("Redis cannot be reached")?;
        Ok(Self { connection })
    }

    pub(crate) async fn read(&mut self) -> anyhow::Result<Calls> {
        let mut command = redis::cmd("INFO");
        let info: String = command
            .arg("commandstats")
            .query_async(&mut self.connection)
            .await?;
        Ok(Calls(info.lines().filter_map(parse).collect()))
    }
}

impl Calls {
    /// The calls since `earlier`.
    pub(crate) fn since(mut self, earlier: &Self) -> Self {
        for (name, calls) in &mut self.0 {
            *calls = calls.saturating_sub(earlier.0.get(name).copied().unwrap_or(0));
        }
        self
    }

    /// The calls of scripts.
    pub(crate) fn of_scripts(&self) -> u64 {
        self.sum(&["eval", "evalsha"])
    }

    /// All commands from clients.
    pub(crate) fn of_clients(&self) -> u64 {
        self.sum(&FROM_CLIENTS)
    }

    fn sum(&self, commands: &[&str]) -> u64 {
        let command = |name: &str| {
            name.split_once('|')
                .map_or(name, |(command, _)| command)
                .to_owned()
        };
        let counted = self
            .0
            .iter()
            .filter(|(name, _)| commands.contains(&command(name).as_str()));
        counted.map(|(_, calls)| calls).sum()
    }
}

/// A line such as `cmdstat_script|load:calls=1,usec=56,usec_per_call=56.00,rejected_calls=0`.
///
/// Rejected calls count, because they were round trips.
fn parse(line: &str) -> Option<(String, u64)> {
    let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let fields = fields.split(',').filter_map(|field| field.split_once('='));
    let calls = fields.filter(|(field, _)| matches!(*field, "calls" | "rejected_calls"));
    Some((
        name.to_owned(),
        calls
            .filter_map(|(_, calls)| calls.parse::<u64>().ok())
            .sum(),
    ))
}
