//! [`CommandStats`]: what `INFO commandstats` counted, to tell how often clients called.

use std::collections::BTreeMap;

use crate::redis_server::RedisServer;

/// Commands that only clients send, never a script of this crate. With their subcommands.
///
/// Left out are the ones that these helpers send themselves, `INFO` among them.
const FROM_CLIENTS: [&str; 19] = [
    "auth",
    "client",
    "cluster",
    "command",
    "discard",
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "exec",
    "fcall",
    "fcall_ro",
    "function",
    "hello",
    "multi",
    "ping",
    "script",
    "select",
    "subscribe",
];

/// The calls that a server has counted per command since it started.
///
/// Redis counts a command that a script runs just like one that a client sends: `EVAL` of a script
/// with a `GET` in it adds one call to each. The counts alone cannot tell them apart, and so
/// neither does `total_commands_processed`. [`client_calls`](Self::client_calls) therefore adds up
/// the commands that scripts never run. That is right for this crate, whose clients send `EVALSHA`,
/// `EVAL`, `SCRIPT LOAD` and what sets up a connection, and it costs the server nothing. But a bare
/// `GET` by a client would go unseen: a test that must see everything uses
/// [`Monitor`](super::monitor::Monitor), which slows the server.
///
/// Calls that failed (`NOSCRIPT`) or were refused before they ran (out of memory) are counted as
/// well: each was a round trip.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandStats {
    /// Names as Redis writes them, such as `evalsha` and, from Redis 7 on, `script|load`.
    calls: BTreeMap<String, u64>,
}

impl CommandStats {
    /// What `server` has counted so far.
    pub fn of(server: &RedisServer) -> Self {
        Self::parse(&server.command::<String>(&["INFO", "commandstats"]))
    }

    /// What was counted after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let calls = self.calls.iter().filter_map(|(name, calls)| {
            let before = earlier.calls.get(name).copied().unwrap_or(0);
            let after = calls.checked_sub(before);
            let after = after.expect("counts only grow, unless the server was restarted");
            (after > 0).then(|| (name.clone(), after))
        });
        Self {
            calls: calls.collect(),
        }
    }

    /// Calls of one command, `script` standing for `script|load` and all its other subcommands.
    pub fn calls(&self, command: &str) -> u64 {
        self.sum(|name| name == command || family(name) == command)
    }

    /// Calls that ran a script, or would have.
    pub fn script_calls(&self) -> u64 {
        self.calls("evalsha") + self.calls("eval")
    }

    /// Commands that clients sent, except data commands outside a script and what these helpers
    /// send.
    pub fn client_calls(&self) -> u64 {
        self.sum(|name| FROM_CLIENTS.contains(&family(name)))
    }

    fn sum(&self, counted: impl Fn(&str) -> bool) -> u64 {
        let calls = self.calls.iter();
        calls
            .filter(|(name, _)| counted(name))
            .map(|(_, calls)| calls)
            .sum()
    }

    /// Lines such as `cmdstat_script|load:calls=1,usec=56,…,rejected_calls=0,failed_calls=0`.
    fn parse(info: &str) -> Self {
        let lines = info
            .lines()
            .filter_map(|line| line.strip_prefix("cmdstat_"));
        let calls = lines.map(|line| {
            let (name, fields) = line.split_once(':').expect("a name and its fields");
            let field = |wanted: &str| -> u64 {
                let mut pairs = fields.split(',').filter_map(|field| field.split_once('='));
                let value = pairs
                    .find(|(key, _)| *key == wanted)
                    .map(|(_, value)| value);
                value.map_or(0, |value| value.parse().expect("a whole number"))
            };
            (name.to_owned(), field("calls") + field("rejected_calls"))
        });
        Self {
            calls: calls.collect(),
        }
    }
}

/// `script` for `script|load`.
fn family(name: &str) -> &str {
    name.split_once('|').map_or(name, |(family, _)| family)
}
