//! Counters of a redis-server: [`Usage`].

use std::collections::BTreeMap;
use std::str::FromStr;

use redis::aio::MultiplexedConnection;

/// Counters of `INFO`, or the difference of two readings.
///
/// Redis counts and times the commands that a script runs, and includes them in the time of the script. So the methods
/// take the names of commands, to avoid counting twice.
#[derive(Debug, Clone)]
pub struct Usage {
    commands: BTreeMap<String, Spent>,
    /// CPU time in microseconds, including reading, parsing and writing.
    pub cpu: u64,
    /// Bytes from clients.
    pub received: u64,
    /// Bytes to clients.
    pub sent: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    calls: u64,
    micros: u64,
}

impl Usage {
    pub async fn read(connection: &mut MultiplexedConnection) -> anyhow::Result<Self> {
        let mut command = redis::cmd("INFO");
        let info: String = command.arg("all").query_async(connection).await?;
        let fields = BTreeMap::from_iter(info.lines().filter_map(|line| line.split_once(':')));
        let commands = fields.iter().filter_map(|(name, stats)| {
            let name = name.strip_prefix("cmdstat_")?.to_owned();
            Some((name, Spent::read(stats)))
        });
        let seconds = |name| field::<f64>(&fields, name);
        Ok(Self {
            commands: commands.collect(),
            cpu: ((seconds("used_cpu_sys") + seconds("used_cpu_user")) * 1e6) as u64,
            received: field(&fields, "total_net_input_bytes"),
            sent: field(&fields, "total_net_output_bytes"),
        })
    }

    /// The difference to `earlier`.
    pub fn since(mut self, earlier: &Self) -> Self {
        for (name, spent) in &mut self.commands {
            let before = earlier.commands.get(name).copied().unwrap_or_default();
            spent.calls -= before.calls;
            spent.micros -= before.micros;
        }
        self.cpu -= earlier.cpu;
        self.received -= earlier.received;
        self.sent -= earlier.sent;
        self
    }

    /// Number of calls of these commands.
    pub fn calls(&self, commands: &[&str]) -> u64 {
        self.of(commands).map(|spent| spent.calls).sum()
    }

    /// Time of these commands in microseconds.
    pub fn micros(&self, commands: &[&str]) -> u64 {
        self.of(commands).map(|spent| spent.micros).sum()
    }

    fn of(&self, commands: &[&str]) -> impl Iterator<Item = &Spent> {
        commands.iter().filter_map(|name| self.commands.get(*name))
    }
}

impl Spent {
    /// Parses the value of a `cmdstat_` line, such as `calls=1,usec=56,usec_per_call=56.00`.
    fn read(stats: &str) -> Self {
        let fields = BTreeMap::from_iter(stats.split(',').filter_map(|it| it.split_once('=')));
        Self {
            calls: field(&fields, "calls"),
            micros: field(&fields, "usec"),
        }
    }
}

fn field<T: FromStr + Default>(fields: &BTreeMap<&str, &str>, name: &str) -> T {
    let field = fields.get(name).and_then(|value| value.parse().ok());
    field.unwrap_or_default()
}
