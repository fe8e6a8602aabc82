//! A separate process with many callers on one key: [`Replica`] and its [`Parent`].

use std::env;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io, process, thread};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota};

/// A limit that no machine reaches, so that requests do not wait.
pub(crate) const LIMIT: u32 = 100_000;
pub(crate) const WINDOW: Duration = Duration::from_millis(10);

const READY: &str = "ready";
const GO: &str = "go";

/// Acquires permits of one key for a given time, as fast as possible.
#[derive(Args)]
pub(crate) struct Replica {
    /// The port of the redis-server
    #[arg(long)]
    pub(crate) port: u16,
    #[arg(long)]
    pub(crate) milliseconds: u64,
    #[arg(long)]
    pub(crate) callers: u32,
}

/// The result of a replica.
pub(crate) struct Done {
    /// Departure times, by the system clock, which all processes share.
    pub(crate) departures: Vec<Duration>,
    pub(crate) cpu: Cpu,
}

/// User and kernel CPU time of a process.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cpu {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

/// The parent's handle to a replica. Dropping it ends the replica.
pub(crate) struct Parent {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Replica {
    /// Runs the replica: prints that it is ready, waits for the start, and prints its CPU time and its departures at
    /// the end.
    #[tokio::main(flavor = "current_thread")]
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let url = format!("redis://127.0.0.1:{}/", self.port);
        let store = RedisStore::connect(&url).await?;
        let limiter = Limiter::builder()
            .store(store.timeout(Duration::from_secs(20)))
            .quota(Quota::new(LIMIT, WINDOW))
            .build()?;
        let started = Arc::new(tokio::sync::Notify::new());
        println!("{READY}");
        wait_for_go(started.clone());
        started.notified().await;

        let before = Cpu::read();
        let until = Instant::now() + Duration::from_millis(self.milliseconds);
        let mut callers = JoinSet::new();
        for _ in 0..self.callers {
            callers.spawn(call(limiter.clone(), until));
        }
        let mut departures = Vec::new();
        while let Some(caller) = callers.join_next().await {
            departures.extend(caller??);
        }
        let Cpu { user, system } = Cpu::read();
        let user = (user - before.user).as_micros();
        let system = (system - before.system).as_micros();
        let mut reply = format!("{user} {system} {}\n", departures.len()).into_bytes();
        reply.extend(departures.into_iter().flat_map(u64::to_le_bytes));
        io::Write::write_all(&mut io::stdout(), &reply)?;
        Ok(())
    }
}

impl Cpu {
    /// The CPU time of this process on Linux; zero on other systems.
    fn read() -> Self {
        // Linux reports CPU times in units of 10 ms.
        const TICK: Duration = Duration::from_millis(10);
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The second field is the program name in parentheses, which may contain any character.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let mut ticks = fields
            .split_whitespace()
            .skip(11)
            .map_while(|it| it.parse().ok());
        let mut next = || TICK * ticks.next().unwrap_or(0);
        Self {
            user: next(),
            system: next(),
        }
    }
}

impl Parent {
    /// Starts a replica and returns once it is ready.
    pub(crate) async fn start(replica: &Replica) -> anyhow::Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .args(["replica", "--port", &replica.port.to_string()])
            .args(["--milliseconds", &replica.milliseconds.to_string()])
            .args(["--callers", &replica.callers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a replica")?;
        let stdin = process.stdin.take().context("a replica without stdin")?;
        let stdout = process.stdout.take().context("a replica without stdout")?;
        let stdout = BufReader::new(stdout);
        let mut parent = Self {
            process,
            stdin,
            stdout,
        };
        let reply = parent.line().await?;
        ensure!(
            reply == READY,
            "expected a replica to be ready, got {reply:?}"
        );
        Ok(parent)
    }

    pub(crate) async fn go(&mut self) -> anyhow::Result<()> {
        Ok(self.stdin.write_all(format!("{GO}\n").as_bytes()).await?)
    }

    /// Waits for the result.
    pub(crate) async fn finish(mut self) -> anyhow::Result<Done> {
        let reply = self.line().await?;
        let numbers: Vec<u64> = reply.split(' ').map_while(|it| it.parse().ok()).collect();
        let [user, system, count] = numbers[..] else {
            bail!("expected a replica to be done, got {reply:?}");
        };
        let mut times = vec![0; count as usize * size_of::<u64>()];
        self.stdout.read_exact(&mut times).await?;
        let status = self.process.wait().await?;
        ensure!(status.success(), "a replica ended with {status}");
        let (times, _) = times.as_chunks();
        let times = times.iter().copied().map(u64::from_le_bytes);
        Ok(Done {
            departures: times.map(Duration::from_nanos).collect(),
            cpu: Cpu {
                user: Duration::from_micros(user),
                system: Duration::from_micros(system),
            },
        })
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).await?;
        Ok(line.trim_end().to_owned())
    }
}

/// Acquires one permit after another. Returns the departure times in nanoseconds.
async fn call(limiter: Limiter, until: Instant) -> anyhow::Result<Vec<u64>> {
    let mut departures = Vec::new();
    while Instant::now() < until {
        let permit = limiter.acquire("hot").await?;
        if permit.is_valid() {
            let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            departures.push(at.as_nanos() as u64);
        } else {
            permit.forfeit();
        }
    }
    Ok(departures)
}

/// Starts the callers when the parent sends [`GO`]. Ends this process when the parent closes its stdin.
///
/// Runs in a separate thread, because reading from stdin blocks.
fn wait_for_go(start: Arc<tokio::sync::Notify>) {
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if line == GO {
                start.notify_one();
            }
        }
        process::exit(1);
    });
}
