//! How often clients called a Redis server: [`CommandStats`].

use std::collections::BTreeMap;

use anyhow::Context as _;
use redis::IntoConnectionInfo as _;
use redis::aio::MultiplexedConnection;

/// Commands that only clients send, and never a script of the limiter; with their subcommands.
///
/// Left out is `INFO`, which is how they are counted.
const FROM_CLIENTS: [&str; 9] = [
    "auth", "client", "config", "eval", "evalsha", "hello", "ping", "script", "select",
];

/// Reads `INFO commandstats` over a connection of its own.
pub(crate) struct CommandStats {
    connection: MultiplexedConnection,
}

/// The calls of each command, named as Redis does: `evalsha`, and from Redis 7 on `script|load`.
///
/// Redis counts a command that a script runs just like one that a client sends, and says of neither
/// which it was. So only commands that scripts never run are looked at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(BTreeMap<String, u64>);

impl CommandStats {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        // The cause stays out of the message, as it may quote the URL and the password in it.
        let info = url.into_connection_info().ok();
        let info =
            info.context("the URL is not one of a Redis server, such as redis://127.0.0.1/")?;
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
    /// What was counted after `earlier`.
    pub(crate) fn since(mut self, earlier: &Self) -> Self {
        for (name, calls) in &mut self.0 {
            *calls = calls.saturating_sub(earlier.0.get(name).copied().unwrap_or(0));
        }
        self
    }

    /// Round trips that ran a script.
    pub(crate) fn of_scripts(&self) -> u64 {
        self.sum(&["eval", "evalsha"])
    }

    /// All that clients sent.
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
/// Calls that were rejected before they ran have been round trips, too.
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
