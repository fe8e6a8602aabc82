//! What permits cost Redis: [`Meter`].

use redis::aio::MultiplexedConnection;

use crate::support::Info;

/// Reads what Redis counts, and knows what the reading adds to it.
pub struct Meter {
    connection: MultiplexedConnection,
}

/// What scripts and the network took, in all.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    /// Calls of scripts.
    pub calls: u64,
    /// Microseconds in them.
    pub script_micros: u64,
    /// Bytes in both directions.
    pub bytes: u64,
}

/// Where a measurement starts.
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

    /// What was since then.
    pub async fn since(&mut self, mark: &Mark) -> anyhow::Result<Traffic> {
        let now = self.read().await?;
        Ok(Traffic {
            calls: now.calls - mark.at.calls,
            script_micros: now.script_micros - mark.at.script_micros,
            bytes: (now.bytes - mark.at.bytes).saturating_sub(mark.reading),
        })
    }

    async fn read(&mut self) -> anyhow::Result<Traffic> {
        // What the second answer takes is counted only in the next reading, as in that before.
        let commands = Info::read(&mut self.connection, "commandstats").await?;
        let stats = Info::read(&mut self.connection, "stats").await?;
        // Before the first script, nothing is said of scripts.
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
