//! Starts a `redis-server` for this example: [`RedisServer`].

use std::env;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

/// A server on its own loopback port, without persistence. Dropping it ends it.
pub(crate) struct RedisServer {
    process: Child,
    port: u16,
    _dir: TempDir,
}

impl RedisServer {
    /// Starts `$REDIS_SERVER`, or the `redis-server` on the `PATH`.
    pub(crate) async fn start() -> anyhow::Result<Self> {
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

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let timeout = Duration::from_secs(20);
        let since = Instant::now();
        while since.elapsed() < timeout {
            if let Some(status) = self.process.try_wait()? {
                bail!("redis-server exited: {status}");
            }
            // Another server could have taken the port first, and would reply, too.
            let ours = format!("process_id:{}\r\n", self.process.id());
            if self.info().await.is_ok_and(|info| info.contains(&ours)) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("redis-server does not reply within {timeout:?}")
    }

    async fn info(&self) -> redis::RedisResult<String> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::cmd("INFO")
            .arg("server")
            .query_async(&mut connection)
            .await
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
            format!(
                "cannot start {binary}: set REDIS_SERVER to a redis-server, or see --help to use a running one"
            )
        })
}
