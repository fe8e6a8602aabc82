//! Redis servers of the benchmarks: stores, scripts, and counters of their cost ([`Meter`]).

use std::time::Duration;

use anyhow::Context as _;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, InfoDict};
use support::redis_server::RedisServer;
use tower_throttle::store::RedisStore;

/// Timeout of all operations, long enough for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(20);

pub async fn connect(server: &RedisServer) -> anyhow::Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
    let client = server.client();
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    Ok(connection.await?)
}

pub async fn store(server: &RedisServer) -> anyhow::Result<RedisStore> {
    let connection = connect(server).await?;
    Ok(RedisStore::from(connection).timeout(TIMEOUT))
}

#[derive(Clone)]
pub struct Script {
    sha: String,
    connection: MultiplexedConnection,
}

impl Script {
    pub async fn load(mut connection: MultiplexedConnection, text: &str) -> anyhow::Result<Self> {
        let mut load = redis::cmd("SCRIPT");
        let sha = load.arg("LOAD").arg(text).query_async(&mut connection);
        Ok(Self {
            sha: sha.await?,
            connection,
        })
    }

    /// A call with one key. The caller adds arguments.
    pub fn call(&self, key: &str) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha).arg(1).arg(key);
        call
    }

    pub async fn send<T: FromRedisValue>(&self, call: &Cmd) -> anyhow::Result<T> {
        Ok(call.query_async(&mut self.connection.clone()).await?)
    }
}

/// Reads counters of Redis, and subtracts the cost of the readings.
pub struct Meter(MultiplexedConnection);

/// Cumulative counters of scripts, the server and the network.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    pub calls: f64,
    pub script_micros: f64,
    /// CPU time of the server in microseconds, including reading, parsing and writing.
    pub cpu_micros: f64,
    pub bytes: f64,
}

pub struct Mark {
    at: Traffic,
    /// The cost of one reading.
    reading: Traffic,
}

impl Meter {
    pub async fn new(server: &RedisServer) -> anyhow::Result<Self> {
        Ok(Self(connect(server).await?))
    }

    pub async fn mark(&mut self) -> anyhow::Result<Mark> {
        let before = self.read().await?;
        let at = self.read().await?;
        let reading = at.minus(&before);
        Ok(Mark { at, reading })
    }

    pub async fn since(&mut self, mark: &Mark) -> anyhow::Result<Traffic> {
        Ok(self.read().await?.minus(&mark.at).minus(&mark.reading))
    }

    /// The counters since the server has started, with the cost of readings.
    pub async fn read(&mut self) -> anyhow::Result<Traffic> {
        let mut command = redis::cmd("INFO");
        let info: InfoDict = command.arg("all").query_async(&mut self.0).await?;
        // Redis omits the field before the first script.
        let scripts: String = info.get("cmdstat_evalsha").unwrap_or_default();
        let script = |name: &str| {
            let mut fields = scripts.split(',').filter_map(|it| it.split_once('='));
            let field = fields.find(|(found, _)| *found == name);
            field.map_or(Ok(0.0), |(_, value)| value.parse())
        };
        let missing = |name| format!("no {name} in INFO");
        let field = |name| info.get::<f64>(name).with_context(|| missing(name));
        Ok(Traffic {
            calls: script("calls")?,
            script_micros: script("usec")?,
            cpu_micros: (field("used_cpu_sys")? + field("used_cpu_user")?) * 1e6,
            bytes: field("total_net_input_bytes")? + field("total_net_output_bytes")?,
        })
    }
}

impl Traffic {
    fn minus(&self, other: &Self) -> Self {
        self.with(other, |one, other| (one - other).max(0.0))
    }

    /// The part of one of so many permits or calls.
    #[must_use]
    pub fn per(&self, count: f64) -> Self {
        self.with(self, |one, _| one / count)
    }

    fn with(&self, other: &Self, figure: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            calls: figure(self.calls, other.calls),
            script_micros: figure(self.script_micros, other.script_micros),
            cpu_micros: figure(self.cpu_micros, other.cpu_micros),
            bytes: figure(self.bytes, other.bytes),
        }
    }
}
