//! [`CommandStats`]: the calls that `INFO commandstats` counts.

use std::collections::BTreeMap;

use crate::redis_server::RedisServer;

/// The calls that a server has counted per command since it started, failed and refused ones included.
/// Commands that scripts run count, too.
#[derive(Debug, Clone)]
pub struct CommandStats {
    /// Names as Redis writes them, such as `evalsha` and `script|load`.
    calls: BTreeMap<String, u64>,
}

impl CommandStats {
    pub fn of(server: &RedisServer) -> Self {
        let info = server.command::<String>(&["INFO", "commandstats"]);
        let lines = info.lines();
        let lines = lines.filter_map(|line| line.strip_prefix("cmdstat_"));
        let calls = lines.map(|line| {
            let (name, fields) = line.split_once(':').expect("a name and its fields");
            let field = |name: &str| -> u64 {
                let value = fields.split(',').find_map(|it| it.strip_prefix(name));
                value.map_or(0, |it| it.parse().expect("a whole number"))
            };
            (name.to_owned(), field("calls=") + field("rejected_calls="))
        });
        Self {
            calls: calls.collect(),
        }
    }

    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        for (name, before) in &earlier.calls {
            let calls = self.calls.get_mut(name);
            *calls.expect("the server was not restarted") -= before;
        }
        self
    }

    pub fn calls(&self, command: &str) -> u64 {
        self.calls.get(command).copied().unwrap_or(0)
    }

    /// Calls that ran a script, or tried to.
    pub fn script_calls(&self) -> u64 {
        self.calls("evalsha") + self.calls("eval")
    }
}
