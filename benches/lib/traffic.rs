//! Measures the cost of permits for Redis: [`Meter`].

use redis::aio::MultiplexedConnection;

use crate::support::Info;

/// Reads counters of Redis, and subtracts the traffic of the readings.
pub struct Meter {
    connection: MultiplexedConnection,
}

/// Cumulative counters of scripts and the network.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    /// Calls of scripts.
    pub calls: u64,
    /// Time in scripts, in microseconds.
    pub script_micros: u64,
    /// Bytes in both directions.
    pub bytes: u64,
}

/// The start of a measurement.
pub struct Mark {
    at: Traffic,
    /// Bytes of one reading.
    reading: u64,
}

impl Meter {
    pub fn new(connection: MultiplexedConnection) -> Self {
        Self { connection }
    }

    pub async fn mark(&mut self) -> anyhow::Result<Mark> {
        let before = self.read().await?;
        let at = self.read().await?;
        Ok(Mark {
            at,
            reading: at.bytes - before.bytes,
        })
    }

    /// The traffic since the mark.
    pub async fn since(&mut self, mark: &Mark) -> anyhow::Result<Traffic> {
        let now = self.read().await?;
        Ok(Traffic {
            calls: now.calls - mark.at.calls,
            script_micros: now.script_micros - mark.at.script_micros,
            bytes: (now.bytes - mark.at.bytes).saturating_sub(mark.reading),
        })
    }

    async fn read(&mut self) -> anyhow::Result<Traffic> {
        // The reply to the second command is counted in the next reading. This cancels out over two readings.
        let commands = Info::read(&mut self.connection, "commandstats").await?;
        let stats = Info::read(&mut self.connection, "stats").await?;
        // Redis omits the field before the first script.
        let scripts = |what| {
            let field = format!("cmdstat_evalsha:{what}");
            commands.number(&field).unwrap_or(0)
        };
        let input = stats.number("total_net_input_bytes")?;
        Ok(Traffic {
            calls: scripts("calls"),
            script_micros: scripts("usec"),
            bytes: input + stats.number("total_net_output_bytes")?,
        })
    }
}
