//! Measures the cost of permits for Redis: [`Meter`].

use redis::aio::MultiplexedConnection;

use crate::support::Info;

/// Reads counters of Redis, and subtracts the cost of the readings.
pub struct Meter {
    connection: MultiplexedConnection,
}

/// Cumulative counters of scripts, the server and the network.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    /// Calls of scripts.
    pub calls: u64,
    /// Time in scripts, in microseconds.
    pub script_micros: u64,
    /// CPU time of the server in microseconds, including reading, parsing and writing.
    pub cpu_micros: u64,
    /// Bytes in both directions.
    pub bytes: u64,
}

/// The start of a measurement.
pub struct Mark {
    at: Traffic,
    /// The cost of one reading.
    reading: Traffic,
}

impl Meter {
    pub fn new(connection: MultiplexedConnection) -> Self {
        Self { connection }
    }

    pub async fn mark(&mut self) -> anyhow::Result<Mark> {
        let before = self.read().await?;
        let at = self.read().await?;
        let reading = at.minus(&before);
        Ok(Mark { at, reading })
    }

    /// The traffic since the mark.
    pub async fn since(&mut self, mark: &Mark) -> anyhow::Result<Traffic> {
        Ok(self.read().await?.minus(&mark.at).minus(&mark.reading))
    }

    /// The counters since the server has started, with the cost of readings.
    pub async fn read(&mut self) -> anyhow::Result<Traffic> {
        let info = Info::read(&mut self.connection, "all").await?;
        // Redis omits the field before the first script.
        let scripts = |what| {
            let field = format!("cmdstat_evalsha:{what}");
            info.number(&field).unwrap_or(0)
        };
        let cpu = info.seconds("used_cpu_sys")? + info.seconds("used_cpu_user")?;
        let input = info.number("total_net_input_bytes")?;
        Ok(Traffic {
            calls: scripts("calls"),
            script_micros: scripts("usec"),
            cpu_micros: (cpu * 1e6) as u64,
            bytes: input + info.number("total_net_output_bytes")?,
        })
    }
}

impl Traffic {
    fn minus(&self, other: &Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(other.calls),
            script_micros: self.script_micros.saturating_sub(other.script_micros),
            cpu_micros: self.cpu_micros.saturating_sub(other.cpu_micros),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}
