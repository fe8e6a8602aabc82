//! Starts a `redis-server` for a benchmark: [`RedisServer`].

use std::env;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tower_throttle::store::RedisStore;

/// Timeout of all operations, long enough for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A server on its own loopback port, without persistence. Dropping it ends it.
pub struct RedisServer {
    process: Child,
    port: u16,
    _dir: TempDir,
}

/// A section of `INFO`.
pub struct Info(String);

impl RedisServer {
    /// Starts `$REDIS_SERVER`, or the `redis-server` on the `PATH`.
    pub async fn start() -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = spawn(port, dir.path())?;
        let mut server = Self {
            process,
            port,
            _dir: dir,
        };
        server.wait_until_ready().await?;
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub async fn connect(&self) -> anyhow::Result<MultiplexedConnection> {
        let client = redis::Client::open(self.url())?;
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Ok(connection.await?)
    }

    /// A store on its own connection.
    pub async fn store(&self) -> anyhow::Result<RedisStore> {
        Ok(RedisStore::from(self.connect().await?).timeout(TIMEOUT))
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        while since.elapsed() < TIMEOUT {
            if let Some(status) = self.process.try_wait()? {
                bail!("redis-server exited: {status}");
            }
            // Another server could have taken the port first, and would reply, too.
            if let Ok(mut connection) = self.connect().await
                && let Ok(info) = Info::read(&mut connection, "server").await
                && info
                    .number("process_id")
                    .is_ok_and(|id| id == u64::from(self.process.id()))
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("redis-server does not reply within {TIMEOUT:?}")
    }
}

impl Info {
    pub async fn read(
        connection: &mut MultiplexedConnection,
        section: &str,
    ) -> anyhow::Result<Self> {
        let mut command = redis::cmd("INFO");
        Ok(Self(command.arg(section).query_async(connection).await?))
    }

    /// The number in the line `FIELD:NUMBER`, or in `LINE:NAME=NUMBER,...` by `LINE:NAME`.
    pub fn number(&self, field: &str) -> anyhow::Result<u64> {
        let text = self.text(field)?;
        text.parse().with_context(|| format!("{field} is {text}"))
    }

    /// The seconds in the line `FIELD:SECONDS`.
    pub fn seconds(&self, field: &str) -> anyhow::Result<f64> {
        let text = self.text(field)?;
        text.parse().with_context(|| format!("{field} is {text}"))
    }

    fn text(&self, field: &str) -> anyhow::Result<&str> {
        let (line, name) = field.split_once(':').unwrap_or((field, ""));
        let mut lines = self.0.lines().filter_map(|line| line.split_once(':'));
        let value = lines
            .find(|(found, _)| *found == line)
            .map(|(_, value)| value);
        let part = value.and_then(|value| {
            value
                .split(',')
                .find_map(|part| match part.split_once('=') {
                    Some((found, value)) => (found == name).then_some(value),
                    None => Some(part),
                })
        });
        part.with_context(|| format!("INFO has no field {field}"))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have ended already: the terminal sends a ctrl-c to both processes.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(port: u16, dir: &Path) -> anyhow::Result<Child> {
    let binary = env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    Command::new(&binary)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| {
            let binary = binary.display();
            format!("cannot start {binary}: set REDIS_SERVER to a redis-server")
        })
}
